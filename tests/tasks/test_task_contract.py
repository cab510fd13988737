"""What every task keeps to, for every tokenizer: a new task is tested by standing in the registry."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from everlong.data.tokenizers import ByteTokenizer, load_tokenizer
from everlong.errors import EverlongError
from everlong.tasks import _cache
from everlong.tasks._cache import example_set
from everlong.tasks.registry import TASKS
from everlong.tasks.source import TaskSource

pytestmark = pytest.mark.parametrize("name", TASKS)
LONG = 1 << 18
OTHERS = {  # a setting that no single example depends on
    "babilong": {"questions": ("qa6", "qa1")},
    "copying": {"copy_longest": 99},
    "passkey": {"depths": (0.25,)},
    "recall": {"facts": (3,)},
}
DOUBLE = 20  # examples of a cell whose scores are averaged


def cells(task, lengths):
    """All cells at these lengths, each no shorter than its own shortest."""
    found = []
    for cell in task.cells(lengths):
        shortest = task.shortest_length(cell)
        found.append({**cell, "length": max(cell["length"], shortest)})
    return found


def written(task, example, ids):
    """Tokens as a model would write them: as many as it is let write."""
    return np.resize(ids, max(task.tokens_to_write(example), len(ids)))[: task.tokens_to_write(example)]


def perfect(task, example):
    stop = task.ids(" ")
    room = max(task.tokens_to_write(example) - len(example.answer), 0)
    return task.score(example, example.answer, np.concatenate([example.answer, np.resize(stop, room)]))


def test_examples_have_the_exact_length_at_every_length(name, tokenizer, make):
    task = make(name, tokenizer)
    for cell in cells(task, [1, 97, 256, 1000, 2048]):
        for extra in (0, 1, 7):
            cell = {**cell, "length": cell["length"] + extra}
            example = task.example(cell, seed=1, index=extra)
            assert len(example.prompt) + len(example.answer) == task.tokens(cell["length"])
            assert example.prompt.dtype == example.answer.dtype == np.int32
            assert max(example.prompt.max(), example.answer.max()) < tokenizer.vocab_size


def test_examples_can_be_256k_long(name, make):
    task = make(name, load_tokenizer("bytes"))
    cell = task.cells([LONG])[-1]
    example = task.example(cell, seed=0, index=0)
    assert len(example.prompt) + len(example.answer) == task.tokens(LONG)


def test_a_length_below_the_shortest_is_refused_and_names_both(name, tokenizer, make):
    task = make(name, tokenizer)
    for cell in task.cells([1]):
        shortest = task.shortest_length(cell)
        task.example({**cell, "length": shortest}, seed=3, index=0)
        with pytest.raises(EverlongError, match=rf"(?s)length of {shortest - 1:,} .* needs {shortest:,}"):
            task.example({**cell, "length": shortest - 1}, seed=3, index=0)


def test_examples_are_a_function_of_parameters_seed_and_index(name, tokenizer, make):
    one, two, training = make(name, tokenizer), make(name, tokenizer), make(name, tokenizer, training=True)
    for cell in cells(one, [300]):
        first, again = one.example(cell, seed=4, index=2), two.example(cell, seed=4, index=2)
        assert np.array_equal(first.prompt, again.prompt)
        assert (first.target, first.question, first.options) == (again.target, again.question, again.options)
        for other in (one.example(cell, seed=5, index=2), one.example(cell, seed=4, index=3)):
            assert not np.array_equal(first.prompt, other.prompt)
        assert not np.array_equal(first.prompt, training.example(cell, seed=4, index=2).prompt)


def test_the_prompt_ends_where_the_answer_begins_and_the_answer_says_the_target_and_stops(name, tokenizer, make):
    task = make(name, tokenizer)
    for cell in cells(task, [300]):
        example = task.example(cell, seed=0, index=0)
        assert tokenizer.decode(example.answer).strip() == f"{example.target}."


def test_the_loss_is_on_the_answer_alone_and_rows_read_the_context(name, tokenizer, make):
    task = make(name, tokenizer, training=True)
    context = max(task.tokens(task.shortest_length(cell)) for cell in task.cells([1])) + 200
    source = TaskSource(task, length=context, batch_size=3, seed=2)
    lengths = set()
    for step in range(4):
        batch, again = source.batch(step), TaskSource(task, length=context, batch_size=3, seed=2).batch(step)
        assert batch.tokens.equal(again.tokens)
        assert batch.loss_mask is not None
        lengths.add(batch.tokens.shape[1])
        for row in range(3):
            index = step * 3 + row
            said = tokenizer.decode(batch.targets[row][batch.loss_mask[row]].numpy())
            length = task.training_length(np.random.default_rng((2, 0x7461_736B, step)), context)
            random = np.random.default_rng((2, 0x7461_736C, index))
            example = task.example(task.training_parameters(random, length, index), seed=2, index=index)
            assert said == tokenizer.decode(example.answer)
            assert batch.loss_mask[row].sum() == len(example.answer)
            assert bool(batch.loss_mask[row, -1])
        assert batch.targets[:, :-1].equal(batch.tokens[:, 1:])
    assert max(lengths) <= context
    assert name == "copying" or lengths == {context}


def test_the_truth_scores_one_and_a_constant_scores_no_more_than_the_floor(name, tokenizer, make):
    task = make(name, tokenizer)
    for cell in cells(task, [400]):
        examples = [task.example(cell, seed=0, index=index) for index in range(DOUBLE)]
        for example in examples:
            assert all(value == 1.0 for value in perfect(task, example).values())
            assert set(perfect(task, example)) == set(task.measures)
        floor = max(task.floors(cell, examples).values())
        assert floor > 0
        # the last value of recall at no distance is always right
        assert floor < 1 or cell.get("distance") == 0
        for answer in {example.target: example.answer for example in examples[:6]}.values():
            scores = [
                task.score(example, np.resize(answer[:1], len(example.answer)), written(task, example, answer))
                for example in examples
            ]
            mean = np.mean([score[task.measures[0]] for score in scores])
            assert mean <= floor + 3 * np.sqrt(floor * (1 - floor) / DOUBLE) + 1 / DOUBLE


def test_nonsense_scores_nothing_and_is_no_error(name, tokenizer, make):
    task = make(name, tokenizer)
    example = task.example(cells(task, [300])[0], seed=0, index=0)
    nonsense = np.full(task.tokens_to_write(example), tokenizer.vocab_size + 3)
    assert set(task.score(example, np.resize(nonsense, len(example.answer)), nonsense).values()) == {0.0}


def test_a_set_is_made_once_and_kept_apart_from_any_other(name, tokenizer, make, tmp_path, monkeypatch):
    task = make(name, tokenizer)
    cell = cells(task, [300])[0]
    kept = example_set(task, cell, seed=0, count=3, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    made = [task.example(cell, seed=0, index=index) for index in range(3)]
    monkeypatch.setattr(task, "example", None)  # from here on nothing can be made
    read = example_set(task, cell, seed=0, count=3, folder=tmp_path)
    for one, two, three in zip(kept, read, made, strict=True):
        for field in ("prompt", "answer"):
            assert np.array_equal(getattr(one, field), getattr(three, field))
            assert np.array_equal(getattr(two, field), getattr(three, field))
        words = [[getattr(e, field) for field in _cache.WORDS] for e in (one, two, three)]
        assert words[0] == words[1] == words[2]
    for other in ({"seed": 1, "count": 3}, {"seed": 0, "count": 2}):
        with pytest.raises(TypeError):
            example_set(task, cell, folder=tmp_path, **other)


def test_a_set_of_other_settings_another_tokenizer_or_other_code_is_another_set(name, make, settings, tmp_path):
    """Each change makes a file of its own, though the examples may come out alike."""
    task = make(name, load_tokenizer("bytes"))
    cell = {**cells(task, [300])[0]}
    with pytest.MonkeyPatch.context() as patch:
        example_set(task, cell, seed=0, count=1, folder=tmp_path)
        patch.setattr(task, "config", replace(task.config, **OTHERS[name]))
        example_set(task, cell, seed=0, count=1, folder=tmp_path)
        assert len(list(tmp_path.iterdir())) == 2
        patch.setattr(task, "tokenizer", OtherBytes())
        example_set(task, cell, seed=0, count=1, folder=tmp_path)
        assert len(list(tmp_path.iterdir())) == 3
        patch.setattr(_cache, "sources", lambda: [Path(__file__)])
        example_set(task, cell, seed=0, count=1, folder=tmp_path)
        assert len(list(tmp_path.iterdir())) == 4


def test_the_code_that_draws_is_part_of_the_key(name):
    sources = {path.name for path in _cache.sources()}
    assert {"_permutation.py", "_task.py", "_books.py", f"{name}.py"} <= sources


class OtherBytes(ByteTokenizer):
    """The same ids, and a file of its own."""

    def save(self, folder):
        (folder / "tokenizer.json").write_text("{}")


def test_a_damaged_byte_anywhere_is_noticed_and_the_set_made_anew(name, make, tmp_path):
    task = make(name, load_tokenizer("bytes"))
    cell = cells(task, [300])[0]
    made = example_set(task, cell, seed=0, count=2, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    sound = path.read_bytes()
    for place in range(0, len(sound), 11):
        damaged = bytearray(sound)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        for one, two in zip(made, example_set(task, cell, seed=0, count=2, folder=tmp_path), strict=True):
            assert np.array_equal(one.prompt, two.prompt)
            assert np.array_equal(one.answer, two.answer)
            assert (one.target, one.options) == (two.target, two.options)


def test_a_torn_file_of_a_set_is_made_anew(name, make, tmp_path):
    task = make(name, load_tokenizer("bytes"))
    cell = cells(task, [300])[0]
    made = example_set(task, cell, seed=0, count=2, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    again = example_set(task, cell, seed=0, count=2, folder=tmp_path)
    assert all(np.array_equal(one.prompt, two.prompt) for one, two in zip(made, again, strict=True))
