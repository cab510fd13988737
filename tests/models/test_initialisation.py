"""Fresh models start as the published code starts them; the restatements name their sources."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from everlong.errors import EverlongError
from everlong.models.architectures import create

WIDTH, LAYERS = 64, 3


def fresh(architecture: str, **config: Any) -> dict[str, Tensor]:
    torch.manual_seed(0)
    return create(architecture, vocab_size=97, d_model=WIDTH, n_layer=LAYERS, **config).state_dict()


def each(tensors: dict[str, Tensor], name: str) -> list[Tensor]:
    found = [tensors[f"backbone.layers.{layer}.{name}"] for layer in range(LAYERS)]
    assert found
    return found


def assert_normal(tensor: Tensor, std: float) -> None:
    assert abs(tensor.mean()) < 5 * std / math.sqrt(tensor.numel())
    assert tensor.std() == pytest.approx(std, rel=5 / math.sqrt(2 * tensor.numel()))


def assert_uniform(tensor: Tensor, low: float, high: float) -> None:
    assert low <= tensor.min()
    assert tensor.max() <= high
    assert tensor.std() == pytest.approx((high - low) / math.sqrt(12), rel=5 / math.sqrt(tensor.numel()))


@pytest.mark.parametrize("architecture", ["mamba1", "mamba2"])
def test_what_the_mambas_share(architecture):
    """mamba_ssm's _init_weights (mixer_seq_simple.py) and the mixers' dt: log-uniform in (0.001, 0.1), D one."""
    sizes: dict[str, Any] = {} if architecture == "mamba1" else {"headdim": 2, "d_state": 16}
    tensors = fresh(architecture, **sizes)
    assert_normal(tensors["backbone.embedding.weight"], 0.02)
    biases = "dt_proj.bias" if architecture == "mamba1" else "dt_bias"
    inner = 2 * WIDTH
    for layer in range(LAYERS):
        mixer = f"backbone.layers.{layer}.mixer."
        steps = torch.nn.functional.softplus(tensors[mixer + biases].double())
        assert_uniform(steps.log(), math.log(0.001) - 1e-4, math.log(0.1) + 1e-4)
        assert (tensors[mixer + "D"] == 1).all()
        bound = 1 / math.sqrt(inner) / math.sqrt(LAYERS)  # kaiming_uniform_(a=sqrt(5)), scaled by depth
        assert_uniform(tensors[mixer + "out_proj.weight"], -bound, bound)
        assert_uniform(tensors[mixer + "in_proj.weight"], -1 / math.sqrt(WIDTH), 1 / math.sqrt(WIDTH))
        assert (tensors[f"backbone.layers.{layer}.norm.weight"] == 1).all()


def test_mamba_1():
    """mamba_simple.py: A is S4D-real in every channel, dt_proj uniform within dt_rank^-0.5."""
    tensors = fresh("mamba1")
    for decays in each(tensors, "mixer.A_log"):
        torch.testing.assert_close(decays, torch.arange(1.0, 17).log().expand(2 * WIDTH, 16))
    for projection in each(tensors, "mixer.dt_proj.weight"):
        assert_uniform(projection, -(4**-0.5), 4**-0.5)


def test_mamba_2():
    """mamba2.py: A uniform in (1, 16), one a head."""
    for decays in each(fresh("mamba2", headdim=1), "mixer.A_log"):
        assert_uniform(decays.exp(), 1 - 1e-4, 16 + 1e-4)


def test_gla():
    """fla's GLAPreTrainedModel._init_weights: every linear map normal with 0.02, biases zero."""
    tensors = fresh("gla", use_short_conv=True)
    for name, tensor in tensors.items():
        if "norm" in name:
            assert (tensor == 1).all(), name
        elif name.endswith("bias"):
            assert (tensor == 0).all(), name
        else:
            assert_normal(tensor, 0.02)


def test_rwkv_6():
    """RWKV-LM, RWKV-v5/src/model.py (RWKV_Tmix_x060, RWKV_CMix_x060, generate_init_weight)."""
    tensors = fresh("rwkv6", headdim=16)
    channel = torch.arange(WIDTH) / WIDTH
    index = torch.arange(WIDTH)
    for layer in range(LAYERS):
        up, down = layer / (LAYERS - 1), 1 - layer / LAYERS
        wanted = {
            "mixer.time_maa_x": 1 - channel**down,
            "mixer.time_maa_w": 1 - channel**down,
            "mixer.time_maa_k": 1 - channel**down,
            "mixer.time_maa_v": 1 - (channel**down + 0.3 * up),
            "mixer.time_maa_r": 1 - channel ** (0.5 * down),
            "mixer.time_maa_g": 1 - channel ** (0.5 * down),
            "mixer.time_decay": -6 + 5 * (index / (WIDTH - 1)) ** (0.7 + 1.3 * up),
            "mixer.time_faaaa": (up * (1 - index / (WIDTH - 1)) + ((index + 1) % 3 - 1) * 0.1).view(4, 16),
            "mlp.time_maa_k": 1 - channel**down,
            "mlp.time_maa_r": 1 - channel**down,
            "mixer.ln_x.weight": torch.full((WIDTH,), ((1 + layer) / LAYERS) ** 0.7),
            "mixer.time_maa_w1": torch.zeros(WIDTH, 5 * 32),
            "mixer.time_decay_w1": torch.zeros(WIDTH, 64),
            "mixer.output.weight": torch.zeros(WIDTH, WIDTH),
            "mlp.value.weight": torch.zeros(WIDTH, 224),
            "mlp.receptance.weight": torch.zeros(WIDTH, WIDTH),
        }
        for name, tensor in wanted.items():
            torch.testing.assert_close(
                tensors[f"backbone.layers.{layer}.{name}"], tensor, msg=lambda m, n=name: f"{n}: {m}"
            )
        for name in ("time_maa_w2", "time_decay_w2"):
            assert_uniform(tensors[f"backbone.layers.{layer}.mixer.{name}"], -0.01, 0.01)
        for name, gain in (("receptance", 1.0), ("key", 0.1), ("value", 1.0), ("gate", 0.1)):
            weight = tensors[f"backbone.layers.{layer}.mixer.{name}.weight"]
            torch.testing.assert_close(weight @ weight.T, gain**2 * torch.eye(WIDTH), atol=1e-5, rtol=0)
    assert_uniform(tensors["backbone.embedding.weight"], -1e-4, 1e-4)
    head = tensors["lm_head.weight"]
    torch.testing.assert_close(head.T @ head, 0.25 * 97 / WIDTH * torch.eye(WIDTH), atol=1e-4, rtol=0)


def test_the_range_of_rwkv6_decays_is_a_setting():
    """The published curve over a layer's keys, between other ends; ends out of order are refused."""
    planted, published = (fresh("rwkv6", headdim=16, **more) for more in ({"time_decay_range": (-21.0, -20.0)}, {}))
    for ours, theirs in zip(each(planted, "mixer.time_decay"), each(published, "mixer.time_decay"), strict=True):
        torch.testing.assert_close(ours, -21 + (theirs + 6) / 5)
    with pytest.raises(EverlongError, match="time_decay_range"):
        fresh("rwkv6", headdim=16, time_decay_range=(-1.0, -6.0))
