"""Evaluation: side by side and streamed, every example is scored as if the model had read it alone and at once."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional

from everlong.data.tokenizers import ByteTokenizer
from everlong.models import generation
from everlong.models.architectures import create
from everlong.tasks import evaluate as evaluation
from everlong.tasks.config import CopyingConfig, PasskeyConfig
from everlong.tasks.copying import Copying
from everlong.tasks.evaluate import evaluate
from everlong.tasks.passkey import Passkey


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    model = create("mamba2", vocab_size=256, d_model=16, n_layer=2, d_state=8, headdim=8, backend="chunked").double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


class Recorded(Copying):
    """Copying, with prompts of different lengths, that keeps what it was given to score."""

    expected: int
    seen: list

    def draw(self, parameters, random, seed, index):
        return super().draw({"length": parameters["length"] + index}, random, seed, index)

    def tokens(self, length):
        return self.expected

    def score(self, example, forced, written):
        self.seen.append((example, forced, written))
        return super().score(example, forced, written)


@pytest.mark.parametrize(("at_once", "piece"), [(8192, 512), (40, 7)])
def test_examples_side_by_side_are_scored_as_each_alone(model, monkeypatch, at_once, piece):
    for module in (generation, evaluation):
        monkeypatch.setattr(module, "TOKENS_AT_ONCE", at_once)
        monkeypatch.setattr(module, "LONGEST_PIECE", piece)
    task, examples = Recorded(CopyingConfig(), ByteTokenizer()), []
    task.seen = []
    for index in range(5):
        task.expected = 2 * (6 + index) + 3
        examples.append(task.example({"length": 6}, seed=0, index=index))
    counted = []
    cell = evaluate(model, task, {"length": 6}, examples, confidence=0.95, advance=counted.append)
    assert sum(counted) == cell.tokens_read == sum(len(example.prompt) for example in examples)
    for place, (example, forced, written) in enumerate(task.seen):
        ids = torch.from_numpy(np.concatenate([example.prompt, example.answer]).astype(np.int64))[None]
        with torch.no_grad():
            logits = model(ids[:, :-1]).logits[0, len(example.prompt) - 1 :]
        assert np.array_equal(forced, logits.argmax(dim=1).numpy())
        nats = functional.cross_entropy(logits, ids[0, len(example.prompt) :])
        assert cell.values["nats"][place] == pytest.approx(float(nats), rel=1e-5)
        alone = ids[:, : len(example.prompt)]
        for token in written:
            with torch.no_grad():
                assert token == model(alone).logits[0, -1].argmax()
            alone = torch.cat([alone, torch.tensor([[token]])], dim=1)
        assert cell.values["character_accuracy"][place] == np.mean(forced == example.answer)


def test_scores_are_means_with_intervals_and_floors_stand_beside(model):
    task = Passkey(PasskeyConfig(wording="compact", digits=1), ByteTokenizer())
    parameters = {"length": 80, "depth": 0.5}
    examples = [task.example(parameters, seed=0, index=index) for index in range(12)]
    cell = evaluate(model, task, parameters, examples, confidence=0.95)
    for name in task.measures:
        score = cell.scores[name]
        assert score.mean == cell.values[name].mean()
        wilson = stats.binomtest(int(cell.values[name].sum()), 12).proportion_ci(0.95, method="wilson")
        assert (score.lower, score.upper) == pytest.approx((wilson.low, wilson.high))
    nats = cell.values["nats"]
    student = stats.t.interval(0.95, 11, loc=nats.mean(), scale=stats.sem(nats))
    assert (cell.scores["nats"].lower, cell.scores["nats"].upper) == pytest.approx(student)
    assert cell.floors == {"chance": 0.1}
    assert cell.parameters == parameters
    assert cell.examples == 12


def test_memory_does_not_grow_with_the_length(model):
    """The largest input that the model is ever given is the same when prompts are ten times as long."""
    task = Passkey(PasskeyConfig(), ByteTokenizer())
    sizes, largest = [], []
    handle = model.backbone.embedding.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].numel()))
    try:
        for length in (3000, 30_000):
            sizes.clear()
            parameters = {"length": length, "depth": 0.5}
            examples = [task.example(parameters, seed=0, index=index) for index in range(2)]
            evaluate(model, task, parameters, examples, confidence=0.95)
            largest.append(max(sizes))
    finally:
        handle.remove()
    assert largest[0] == largest[1] <= generation.TOKENS_AT_ONCE


def test_what_all_prompts_begin_with_is_read_once_for_the_whole_cell(model, monkeypatch):
    monkeypatch.setattr(evaluation, "TOKENS_AT_ONCE", 3 * evaluation.LONGEST_PIECE)  # three examples at a time
    task, parameters = Passkey(PasskeyConfig(), ByteTokenizer()), {"length": 1200, "depth": 0.9}
    examples = [task.example(parameters, seed=0, index=index) for index in range(8)]
    shapes, counted, plain = [], [], model.advance
    monkeypatch.setattr(
        model, "advance", lambda tokens, state=None: shapes.append(tokens.shape) or plain(tokens, state)
    )
    cell = evaluate(model, task, parameters, examples, confidence=0.95, advance=counted.append)
    read = sum(rows * length for rows, length in shapes if length > 1)
    common = next(place for place in range(1200) if len({int(example.prompt[place]) for example in examples}) > 1)
    own = sum(len(example.prompt) - common for example in examples)
    assert common > 900
    assert common + own - len(examples) <= read <= common + own
    assert sum(counted) == cell.tokens_read
    alone = [evaluate(model, task, parameters, [example], confidence=0.95) for example in examples]
    np.testing.assert_allclose(cell.values["nats"], [one.values["nats"][0] for one in alone], rtol=1e-9)


def test_an_example_whose_logits_are_not_finite_is_wrong_and_the_cell_says_so(model):
    task, parameters = (
        Passkey(PasskeyConfig(wording="compact", digits=2), ByteTokenizer()),
        {"length": 80, "depth": 0.5},
    )
    examples = [task.example(parameters, seed=0, index=index) for index in range(12)]
    broken = np.array(["7" in example.target for example in examples])
    assert 0 < broken.sum() < 12
    damaged = deepcopy(model)
    damaged.lm_head.weight = torch.nn.Parameter(damaged.lm_head.weight.detach().clone())  # the embedding is its own
    with torch.no_grad():
        damaged.backbone.embedding.weight[ord("7")] = float("nan")
    cell = evaluate(damaged, task, parameters, examples, confidence=0.95)
    assert f"{broken.sum()} of 12 examples came to logits that are not finite" in cell.notes[-1]
    assert (np.isnan(cell.values["nats"]) == broken).all()
    assert not any(cell.values[name][broken].any() for name in task.measures)
    sound = evaluate(model, task, parameters, examples, confidence=0.95)
    np.testing.assert_allclose(cell.values["nats"][~broken], sound.values["nats"][~broken])
    assert sound.notes == ()


def test_ids_that_the_tokenizer_does_not_know_are_never_written(monkeypatch):
    """A model of 300 ids to which those above the bytes are the likeliest everywhere."""
    torch.manual_seed(3)
    model = create("mamba2", vocab_size=300, d_model=16, n_layer=1, d_state=8, headdim=8, backend="chunked")
    model.lm_head = torch.nn.Linear(16, model.lm_head.weight.shape[0])  # type: ignore[assignment]
    with torch.no_grad():
        model.lm_head.bias[256:] = 1e3
    task, parameters, seen = (
        Passkey(PasskeyConfig(wording="compact"), ByteTokenizer()),
        {"length": 80, "depth": 0.5},
        [],
    )
    score = task.score
    monkeypatch.setattr(task, "score", lambda *given: seen.append(given[-1]) or score(*given))
    examples = [task.example(parameters, seed=0, index=index) for index in range(2)]
    evaluate(model, task, parameters, examples, confidence=0.95)
    assert [len(written) for written in seen] == [task.tokens_to_write(example) for example in examples]
    assert max(written.max() for written in seen) < 256
