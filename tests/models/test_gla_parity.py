"""GLA agrees with flash-linear-attention's, restated here token by token over the tensors of a saved fla checkpoint.

The restatement is of naive_recurrent_gla (fla/ops/gla/naive.py), GatedLinearAttention (fla/layers/gla.py) and GLABlock
of fla 0.6.0, whose own kernels need Triton and a GPU.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import logsigmoid, rms_norm, silu

from everlong.checkpoints._names import NameTable
from everlong.checkpoints.fla import KINDS
from everlong.loading import open_model, save

from .tiny import tiny_model, tokens_for


def restated(folder: Path, tokens: Tensor) -> Tensor:
    """Logits of a GLAForCausalLM folder, one token after the other, in float64."""
    config = json.loads((folder / "config.json").read_text())
    weights = {name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()}
    width, heads, epsilon = config["hidden_size"], config["num_heads"], config["norm_eps"]
    key_size = int(width * config["expand_k"]) // heads
    value_size = int(width * config["expand_v"]) // heads
    states: dict[int, Tensor] = {}
    windows: dict[str, list[Tensor]] = {}
    logits = []

    def project(name: str, x: Tensor) -> Tensor:
        y = weights[f"{name}_proj.weight"] @ x
        if config["use_short_conv"]:
            filters = weights[f"{name}_conv1d.weight"][:, 0]
            window = windows.setdefault(name, [torch.zeros_like(y)] * (config["conv_size"] - 1))
            seen = [*window, y]
            windows[name] = seen[1:]
            y = silu(sum((filters[:, i] * past for i, past in enumerate(seen)), torch.zeros_like(y)))
        return y

    def norm(name: str, x: Tensor) -> Tensor:
        return rms_norm(x, x.shape[-1:], weights[f"{name}.weight"], epsilon)

    for token in tokens:
        x = weights["model.embeddings.weight"][token]
        for layer in range(config["num_hidden_layers"]):
            block = f"model.layers.{layer}"
            h, attention = norm(f"{block}.attn_norm", x), f"{block}.attn"
            q, k = (project(f"{attention}.{which}", h).view(heads, key_size) for which in "qk")
            v = project(f"{attention}.v", h).view(heads, value_size)
            low = weights[f"{attention}.gk_proj.0.weight"] @ h
            gate = weights[f"{attention}.gk_proj.1.weight"] @ low + weights[f"{attention}.gk_proj.1.bias"]
            alpha = (logsigmoid(gate) / 16).exp().view(heads, key_size, 1)
            state = states.get(layer, torch.zeros(heads, key_size, value_size, dtype=torch.float64))
            states[layer] = state = alpha * state + k[:, :, None] * v[:, None, :]
            o = (q[:, :, None] / math.sqrt(key_size) * state).sum(1)
            g = (weights[f"{attention}.g_proj.weight"] @ h).view(heads, value_size)
            gated = norm(f"{attention}.g_norm_swish_gate", o) * silu(g)
            x = x + weights[f"{attention}.o_proj.weight"] @ gated.flatten()
            h, mlp = norm(f"{block}.mlp_norm", x), f"{block}.mlp"
            inner = silu(weights[f"{mlp}.gate_proj.weight"] @ h) * (weights[f"{mlp}.up_proj.weight"] @ h)
            x = x + weights[f"{mlp}.down_proj.weight"] @ inner
        head = weights["model.embeddings.weight" if config["tie_word_embeddings"] else "lm_head.weight"]
        logits.append(head @ norm("model.norm", x))
    return torch.stack(logits)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("convolutions", [False, True])
@pytest.mark.parametrize("backend", ["chunked", "reference"])
def test_logits_agree(convolutions, tied, backend, tmp_path):
    published: dict[str, Any] = {"gate_low_rank_dim": 16, "gate_logit_normalizer": 16.0, "intermediate_size": 0}
    model = tiny_model("gla", backend=backend, use_short_conv=convolutions, tie_embeddings=tied, **published)
    save(model, tmp_path / "fla", format="fla")
    opened = open_model(tmp_path / "fla", backend=backend, dtype="float64").model
    tokens = tokens_for(model, 1, 37)
    wanted = restated(tmp_path / "fla", tokens[0])
    assert wanted.std() > 0.1
    torch.testing.assert_close(opened(tokens).logits[0], wanted, rtol=1e-9, atol=1e-10)


def test_the_names_are_those_of_fla():
    names: NameTable = KINDS["gla"].names
    assert names.theirs("backbone.layers.11.mixer.gk_proj.0.weight") == "model.layers.11.attn.gk_proj.0.weight"
    model = tiny_model("gla")
    for name in model.state_dict():
        assert names.ours(names.theirs(name)) == name
