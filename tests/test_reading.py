"""Streamed reads: whatever the batch, the piece or the policy, each loss is that of its own prefix."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from everlong import reading
from everlong.errors import EverlongError
from everlong.models.architectures import create
from everlong.models.generation import read_prompts
from everlong.policies._plan import Read
from everlong.policies.carry import Carry
from everlong.policies.recentre import Recentre
from everlong.policies.restart import Restart
from everlong.policies.window import Window
from everlong.rows import cross_entropy


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


def test_recentring_subtracts_the_drift_of_the_mean_over_the_calibration_rows(model, documents, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_PIECE", 7)
    row, others = documents[2], [documents[0], documents[3]]
    found = reading.losses(model, [row], Recentre(16), [(0, 1, 20), (0, 40, 85)], calibration=others)
    tokens = torch.from_numpy(np.stack([row[:90], *others]).astype(np.int64))
    state, reference, logits = None, None, []
    with torch.no_grad():
        for start in range(0, 89, 16):
            output = model(tokens[:, start : min(start + 16, 89)], state)
            logits.append(output.logits[0])
            mean = [leaf[1:].mean(0) for leaf in output.state.leaves]
            reference = reference or mean
            drifts = [
                now - then if leaf.role == "recurrent" else 0
                for leaf, now, then in zip(output.state.spec.leaves, mean, reference, strict=True)
            ]
            leaves = tuple(leaf - drift for leaf, drift in zip(output.state.leaves, drifts, strict=True))
            state = type(output.state)(output.state.spec, leaves)
    nats = functional.cross_entropy(torch.cat(logits), tokens[0, 1:90], reduction="none").numpy()
    np.testing.assert_allclose(found[0], nats[:20], rtol=1e-5)
    np.testing.assert_allclose(found[1], nats[39:85], rtol=1e-5)


@pytest.mark.parametrize("calibration", [(), (33, 90)])
def test_recentring_without_enough_calibration_is_an_error(model, documents, calibration):
    rows = [np.zeros(length, dtype=np.uint16) for length in calibration]
    with pytest.raises(EverlongError, match="recentring needs calibration rows of 60 tokens or more"):
        reading.losses(model, documents, Recentre(16), [(2, 1, 60)], calibration=rows)


def test_spans_of_one_document_are_read_once(model, documents):
    spans = [(2, 5, 10), (2, 50, 60), (2, 100, 120)]
    counted = []
    reading.losses(model, documents, Carry(), spans, advance=counted.append)
    assert sum(counted) == reading.tokens_to_read(Carry(), spans) == 120


def test_a_sweep_holds_every_read_as_if_it_were_alone(model, documents, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_PIECE", 5)
    reads = [(0, Read(0, 60, 60)), (2, Read(10, 45, 45)), (3, Read(45, 60, 60)), (2, Read(70, 80, 80))]
    seen = {}
    for moment in reading.sweep(model, documents, reads, [5, 30, 45, 60, 65, 80, 100]):
        seen[moment.position] = moment.reads
        for row, index in enumerate(moment.reads):
            document, read = reads[index]
            tokens = torch.from_numpy(documents[document][read.start : moment.position].astype(np.int64))[None]
            alone = model(tokens)
            torch.testing.assert_close(moment.logits[row], alone.logits[0, -1].detach())
            for found, wanted in zip(moment.state.leaves, alone.state.leaves, strict=True):
                torch.testing.assert_close(found[row], wanted[0].detach())
    assert seen == {5: (0,), 30: (0, 1), 45: (0, 1), 60: (0, 2), 80: (3,)}


@pytest.mark.parametrize("split", [1, 17, 89])
def test_every_likelihood_is_of_the_whole_softmax_and_what_only_pads_is_never_the_likeliest(model, documents, split):
    """50 ids in 64 rows, of which those that pad have most of the mass: carried, forced and trained are one sum."""
    weight, tokens = model.lm_head.weight, torch.from_numpy(documents[0].astype(np.int64))
    assert weight.shape[0] == 64
    before = weight.detach().clone()
    try:
        with torch.no_grad():
            weight[50:] = 3 * weight[:14].flip(0)
            logits = model(tokens[None, :-1]).logits
        trained = float(cross_entropy(logits, tokens[None, 1:], None))
        carried = reading.losses(model, documents, Carry(), [(0, 1, 89)])[0]
        prompt = read_prompts(model, [tokens[:split]])
        likeliest, forced = reading.read_answers(model, *prompt, [documents[0][split:]])
        (fewer,), _ = reading.read_answers(model, *prompt, [documents[0][split:]], known=20)
    finally:
        with torch.no_grad():
            weight.copy_(before)
    assert logits[0].argmax(1).max() >= 50
    assert float(functional.cross_entropy(logits[0, :, :50], tokens[1:], reduction="sum")) < 0.95 * trained
    np.testing.assert_allclose(carried.sum(dtype=np.float64), trained, rtol=1e-6)
    np.testing.assert_allclose(carried[: split - 1].sum(dtype=np.float64) + forced[0].sum(), trained, rtol=1e-6)
    assert likeliest[0].tolist() == logits[0, split - 1 :, :50].argmax(1).tolist()
    assert fewer.tolist() == logits[0, split - 1 :, :20].argmax(1).tolist()
