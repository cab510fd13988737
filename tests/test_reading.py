"""Streamed reads: whatever the batch, the piece or the policy, each loss is that of its own prefix."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from everlong import reading
from everlong.models.architectures import create
from everlong.policies.carry import Carry
from everlong.policies.restart import Restart
from everlong.policies.window import Window


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = create("mamba2", vocab_size=50, d_model=16, n_layer=2, d_state=8, headdim=8, backend="chunked").double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def documents():
    generator = np.random.default_rng(0)
    return [generator.integers(0, 50, n).astype(np.uint16) for n in (90, 33, 200, 90)]


def losses_one_by_one(model, document, start, stop, scored_from):
    tokens = torch.from_numpy(document.astype(np.int64))
    with torch.no_grad():
        logits = model(tokens[None, start:stop]).logits[0]
    nats = functional.cross_entropy(logits, tokens[start + 1 : stop + 1], reduction="none").numpy()
    return nats[scored_from - start - 1 :]


@pytest.mark.parametrize("policy", [Carry(), Restart(16), Window(16), Window(40)], ids=lambda policy: policy.name)
@pytest.mark.parametrize("at_once", [1, 50, 100000])
def test_losses_equal_reading_each_prefix_alone(model, documents, policy, at_once, monkeypatch):
    monkeypatch.setattr(reading, "TOKENS_AT_ONCE", at_once)
    spans = [(0, 1, 89), (1, 1, 32), (2, 17, 80), (3, 60, 60), (2, 185, 199)]
    found = reading.losses(model, documents, policy, spans)
    for (document, first, last), values in zip(spans, found, strict=True):
        expected = np.concatenate(
            [
                losses_one_by_one(model, documents[document], read.start, read.stop, read.scored_from)
                for read in policy.reads(first, last)
            ]
        )
        np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_progress_counts_the_tokens_announced(model, documents):
    spans = [(0, 1, 89), (2, 40, 199)]
    counted = []
    reading.losses(model, documents, Window(16), spans, advance=counted.append)
    assert sum(counted) == reading.tokens_to_read(Window(16), spans)


def test_states_at_positions_equal_reading_to_each_at_once(model, documents, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_PIECE", 7)
    tokens = torch.from_numpy(documents[2].astype(np.int64))[None]
    for position, state in reading.states_at(model, tokens, [1, 20, 21, 150]):
        expected = model(tokens[:, :position]).state
        for found, wanted in zip(state.leaves, expected.leaves, strict=True):
            torch.testing.assert_close(found, wanted)


def test_memory_does_not_grow_with_the_length(model):
    """The largest tensor that the model is ever given stays the same when the document is ten times as long."""
    sizes = []
    handle = model.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].numel()))
    try:
        largest = []
        for length in (2000, 20000):
            sizes.clear()
            reading.losses(model, [np.zeros(length + 1, dtype=np.uint16)], Carry(), [(0, 1, length)])
            largest.append(max(sizes))
    finally:
        handle.remove()
    assert largest[0] == largest[1] <= reading.LONGEST_PIECE
