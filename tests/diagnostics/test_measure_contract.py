"""What every measure promises, on every architecture: both registries are run over, so a new member arrives tested."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from everlong import reading
from everlong.diagnostics.config import MeasuresConfig
from everlong.diagnostics.measures import MEASURES
from everlong.records.files import load_record, save_record
from everlong.records.measurements import Basis
from tests.diagnostics.examined import LENGTH, examined
from tests.models.tiny import names, tiny_model

CONFIG = MeasuresConfig(remembrance_starts=6, worst_heads=2)
over_both = pytest.mark.parametrize("measure", MEASURES)
architectures = pytest.mark.parametrize("architecture", names())


def model_of(architecture):
    return tiny_model(architecture, dtype=torch.float32)


@architectures
@over_both
def test_its_record_says_what_it_rests_on_and_comes_back_as_it_was(measure, architecture, tmp_path):
    examination = examined(model_of(architecture))
    record = MEASURES[measure](examination, CONFIG)
    basis = record.basis
    assert isinstance(basis, Basis)
    assert (basis.architecture, basis.length, len(basis.documents)) == (architecture, LENGTH, 4)
    assert basis.tokens_read > 0
    save_record(record, tmp_path / "record.json")
    np.testing.assert_equal(asdict(load_record(tmp_path / "record.json")), asdict(record))


@architectures
@over_both
def test_it_leaves_the_model_as_it_was_and_finds_the_same_again(measure, architecture):
    model = model_of(architecture)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first, second = (MEASURES[measure](examined(model), CONFIG) for _ in range(2))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    timeless = [asdict(replace(record, basis=replace(record.basis, seconds=0.0))) for record in (first, second)]
    np.testing.assert_equal(timeless[0], timeless[1])


@over_both
def test_its_memory_does_not_grow_with_the_length(measure, monkeypatch):
    """The largest input that the model is ever given is the same when documents are three times as long."""
    monkeypatch.setattr(reading, "LONGEST_PIECE", 32)
    monkeypatch.setattr(reading, "TOKENS_AT_ONCE", 512)
    largest = []
    for length in (256, 768):  # both beyond the widest window, eight training lengths
        model = model_of("mamba2")
        sizes: list[int] = []

        def note(_, inputs, into=sizes):
            into.append(inputs[0].numel())

        handle = model.get_submodule("backbone.embedding").register_forward_pre_hook(note)  # however it is called
        MEASURES[measure](examined(model, length=length, lengths=(length + 5,) * 4), CONFIG)
        handle.remove()
        largest.append(max(sizes))
    assert largest[1] <= 1.5 * largest[0]


@over_both
def test_a_model_that_predicts_without_its_state_is_told_so_without_failing(measure):
    """States that stay zero have no law, no rank and no effect; nothing divides by them."""
    model = model_of("mamba2")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("backbone.layers"):
                parameter.zero_()
    MEASURES[measure](examined(model), CONFIG)
