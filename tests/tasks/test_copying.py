import pytest
import torch

from everlong.data.tokenizers import ByteTokenizer
from everlong.errors import EverlongError
from everlong.interventions.methods import create as create_intervention
from everlong.models.architectures import create
from everlong.tasks.config import CopyingConfig
from everlong.tasks.copying import Copying
from everlong.tasks.source import TaskSource

SHORT = CopyingConfig(copy_shortest=3, copy_longest=7)


def source(**settings):
    task = Copying(SHORT, ByteTokenizer(), training=True)
    return TaskSource(task, **{"length": 16, "batch_size": 2, "seed": 0, **settings})


def test_the_form_is_that_of_the_paper():
    example = Copying(SHORT, ByteTokenizer()).example({"length": 5}, seed=0, index=0)
    assert ByteTokenizer().decode(example.prompt) == f"${example.target}|"
    assert ByteTokenizer().decode(example.answer) == f"{example.target}."


def test_training_lengths_are_drawn_over_the_whole_range():
    assert {source().batch(step).tokens.shape[1] for step in range(60)} == {2 * n + 2 for n in range(3, 8)}


def test_a_context_that_does_not_hold_the_longest_string_is_refused():
    with pytest.raises(EverlongError, match="--context 16"):
        source(length=15)


def test_with_state_passing_each_row_passes_the_state_at_its_own_end():
    """Rows of different lengths follow one another; what is carried is what each row alone would have ended with."""
    torch.manual_seed(0)
    model = create("mamba2", vocab_size=256, d_model=16, n_layer=2, d_state=8, headdim=8, backend="chunked").double()
    method = create_intervention("state_passing", seed=0, reset_probability=0.0)
    expected = model.zero_state(2)
    for step in range(4):
        batch = source().batch(step)
        initial = method.initial_state(batch.starts, model.state_spec, step, batch.rows)
        for found, wanted in zip(initial.leaves, expected.leaves, strict=True):
            torch.testing.assert_close(found, wanted)
        with torch.no_grad():
            method.observe(model(batch.tokens, initial).state, torch.zeros(2, dtype=torch.int64))
            rows = [model(batch.tokens[row : row + 1], expected.rows(slice(row, row + 1))).state for row in range(2)]
        expected = rows[0].zip(rows[1], lambda one, two: torch.cat([one, two]))


def test_a_tokenizer_that_splits_letters_is_refused():
    class Split(ByteTokenizer):
        def encode(self, text):
            return super().encode(text + text)

    with pytest.raises(EverlongError, match="a token for each letter"):
        Copying(SHORT, Split())
