"""RWKV-6 agrees with BlinkDL's and with flash-linear-attention's, restated here token by token over saved tensors.

The restatements are of RWKV_Tmix_x060 and RWKV_CMix_x060 (RWKV-LM, RWKV-v5/rwkv_v6_demo.py), and of RWKV6Attention
(fla/layers/rwkv6.py) on naive_recurrent_rwkv6 (fla/ops/rwkv6/recurrent_naive.py) of fla 0.6.0.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import group_norm, layer_norm, relu, silu

from everlong.loading import open_model, save

from .tiny import tiny_model, tokens_for

HEADS = 2
CLOSE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-10}


class Restated:
    """One token after the other, in float64; a subclass names the tensors of its format."""

    norm_epsilon = 1e-5
    group_epsilon = 1e-5

    def __init__(self, weights: dict[str, Tensor], heads: int):
        self.weights = {name: tensor.double() for name, tensor in weights.items()}
        self.heads = heads
        self.shifts: dict[str, Tensor] = {}
        self.states: dict[int, Tensor] = {}

    def norm(self, name: str, x: Tensor) -> Tensor:
        return layer_norm(
            x, x.shape, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], eps=self.norm_epsilon
        )

    def before(self, name: str, x: Tensor) -> Tensor:
        previous = self.shifts.get(name, torch.zeros_like(x))
        self.shifts[name] = x
        return previous

    def recur(self, layer: int, r: Tensor, k: Tensor, v: Tensor, w: Tensor, u: Tensor, name: str) -> Tensor:
        r, k, w, u = (x.reshape(self.heads, -1, 1) for x in (r, k, w, u))
        write = k * v.view(self.heads, 1, -1)
        state = self.states.get(layer, torch.zeros_like(write))
        o = (r * (state + u * write)).sum(1)
        self.states[layer] = torch.exp(-torch.exp(w)) * state + write
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return group_norm(o.view(1, -1), self.heads, weight, bias, eps=self.group_epsilon)[0]


class BlinkDL(Restated):
    group_epsilon = 64e-5

    def step(self, token: int, layers: int) -> Tensor:
        z = self.weights
        x = self.norm("blocks.0.ln0", z["emb.weight"][token])
        for layer in range(layers):
            att, ffn = f"blocks.{layer}.att", f"blocks.{layer}.ffn"
            h = self.norm(f"blocks.{layer}.ln1", x)
            sx = self.before(att, h) - h
            five = torch.tanh((h + sx * z[f"{att}.time_maa_x"].view(-1)) @ z[f"{att}.time_maa_w1"]).view(5, 1, -1)
            five = torch.bmm(five, z[f"{att}.time_maa_w2"]).view(5, -1)
            mixed = {n: h + sx * (z[f"{att}.time_maa_{n}"].view(-1) + five[i]) for i, n in enumerate("wkvrg")}
            w = z[f"{att}.time_decay"].view(-1)
            w = w + torch.tanh(mixed["w"] @ z[f"{att}.time_decay_w1"]) @ z[f"{att}.time_decay_w2"]
            r, k, v = (z[f"{att}.{name}.weight"] @ mixed[name[0]] for name in ("receptance", "key", "value"))
            o = self.recur(layer, r, k, v, w, z[f"{att}.time_faaaa"], f"{att}.ln_x")
            x = x + z[f"{att}.output.weight"] @ (o * silu(z[f"{att}.gate.weight"] @ mixed["g"]))
            h = self.norm(f"blocks.{layer}.ln2", x)
            sx = self.before(ffn, h) - h
            k = relu(z[f"{ffn}.key.weight"] @ (h + sx * z[f"{ffn}.time_maa_k"].view(-1))) ** 2
            r = z[f"{ffn}.receptance.weight"] @ (h + sx * z[f"{ffn}.time_maa_r"].view(-1))
            x = x + torch.sigmoid(r) * (z[f"{ffn}.value.weight"] @ k)
        return z["head.weight"] @ self.norm("ln_out", x)


class Fla(Restated):
    def step(self, token: int, layers: int) -> Tensor:
        z = self.weights
        x = self.norm("model.layers.0.pre_norm", z["model.embeddings.weight"][token])
        for layer in range(layers):
            attn, ffn = f"model.layers.{layer}.attn", f"model.layers.{layer}.ffn"
            h = self.norm(f"model.layers.{layer}.attn_norm", x)
            delta = self.before(attn, h) - h
            low = torch.tanh(z[f"{attn}.x_proj.0.linear.weight"] @ (h + delta * z[f"{attn}.x_proj.0.mu"])).view(5, -1)
            mu = torch.einsum("nr,hnr->nh", low, z[f"{attn}.x_proj.2.weight"].view(len(h), 5, -1))
            mu = mu + z[f"{attn}.x_bias"]
            r, w, k, v, g = h + delta * mu
            w = torch.tanh(z[f"{attn}.w_proj.linear.lora.0.weight"] @ w)
            w = z[f"{attn}.w_proj.linear.lora.2.weight"] @ w + z[f"{attn}.w_proj.linear.lora.2.bias"]
            r, k, v, g = (
                z[f"{attn}.{name}_proj.linear.weight"] @ y for name, y in zip("rkvg", (r, k, v, g), strict=True)
            )
            o = self.recur(layer, r, k, v, w, z[f"{attn}.bonus"], f"{attn}.g_norm")
            x = x + z[f"{attn}.o_proj.weight"] @ (o * silu(g))
            h = self.norm(f"model.layers.{layer}.ffn_norm", x)
            delta = self.before(ffn, h) - h
            key = relu(z[f"{ffn}.key.linear.weight"] @ (h + delta * z[f"{ffn}.key.mu"])) ** 2
            receptance = z[f"{ffn}.receptance.linear.weight"] @ (h + delta * z[f"{ffn}.receptance.mu"])
            x = x + torch.sigmoid(receptance) * (z[f"{ffn}.value.weight"] @ key)
        return z.get("lm_head.weight", z["model.embeddings.weight"]) @ self.norm("model.norm", x)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("backend", ["chunked", "reference"])
def test_logits_agree_with_blinkdl(backend, tied, tmp_path):
    model = tiny_model("rwkv6", backend=backend, tie_embeddings=tied, expand_v=1.0)
    save(model, tmp_path / "m", format="rwkv")
    tokens = tokens_for(model, 1, 37)
    restated = BlinkDL(torch.load(tmp_path / "m/model.pth", weights_only=True), HEADS)
    wanted = torch.stack([restated.step(int(token), 2) for token in tokens[0]])
    opened = open_model(tmp_path / "m", backend=backend, dtype="float64").model
    assert opened.config.tie_embeddings is tied
    torch.testing.assert_close(opened(tokens).logits[0], wanted, **CLOSE)


@pytest.mark.parametrize(
    ("epsilon", "expand_v"), [(1e-5, 1.5), (64e-5, 1.5), (64e-5, 1.0)], ids=["fla", "published-wide", "published"]
)
def test_logits_agree_with_fla_whose_norms_share_one_epsilon(epsilon, expand_v, tmp_path):
    model = tiny_model("rwkv6", group_norm_epsilon=epsilon, expand_v=expand_v)
    save(model, tmp_path / "m", format="fla")
    tokens = tokens_for(model, 1, 37)
    restated = Fla(load_file(tmp_path / "m/model.safetensors"), HEADS)
    wanted = torch.stack([restated.step(int(token), 2) for token in tokens[0]])
    torch.testing.assert_close(model(tokens).logits[0], wanted, **CLOSE)
    opened = open_model(tmp_path / "m", backend="chunked", dtype="float64").model
    torch.testing.assert_close(opened(tokens).logits[0], wanted, **CLOSE)
    assert opened.config == model.config
    assert ("group_norm_eps" in json.loads(Path(tmp_path / "m/config.json").read_text())) is (epsilon != 1e-5)
