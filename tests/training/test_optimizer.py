import torch
from torch import nn

from everlong.training.config import TrainingConfig
from everlong.training.optimizer import adamw
from tests.training.arms import tiny_model


def groups(model: nn.Module) -> tuple[set[str], set[str]]:
    optimizer = adamw(model, TrainingConfig(weight_decay=0.1))
    decayed, others = optimizer.param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {names[p] for p in decayed["params"]}, {names[p] for p in others["params"]}


def test_matrices_and_filters_decay_and_nothing_of_one_axis_does():
    decayed, others = groups(tiny_model())
    kinds = {name.removeprefix("backbone.layers.0.") for name in decayed if "layers.1." not in name}
    assert kinds == {
        "backbone.embedding.weight",
        "mixer.in_proj.weight",
        "mixer.conv1d.weight",
        "mixer.out_proj.weight",
    }
    assert {"backbone.layers.1.mixer.A_log", "backbone.layers.1.mixer.dt_bias", "backbone.norm_f.weight"} <= others


def test_decay_rates_never_decay_even_as_matrices():
    model = nn.Module()
    model.A_log, model.weight = nn.Parameter(torch.ones(4, 3)), nn.Parameter(torch.ones(4, 3))
    assert groups(model) == ({"weight"}, {"A_log"})


def test_every_parameter_is_in_one_group_and_frozen_ones_in_none():
    model = tiny_model()
    model.backbone.embedding.weight.requires_grad_(False)
    decayed, others = groups(model)
    assert not decayed & others
    every = {name for name, _ in model.named_parameters()}
    assert decayed | others == every - {"backbone.embedding.weight"}
