"""RWKV-6, "Finch" (Peng et al. 2024, arXiv 2404.05892): decays and interpolations that depend on the data.

Follows BlinkDL's RWKV-LM (RWKV-v5/rwkv_v6_demo.py), parameter names within a layer included, and for keys and values
of unequal width flash-linear-attention 0.6.0 (fla/layers/rwkv6.py). Time mix, with x' the input before x:

    x_i = x + (x' - x) * (maa_i + tanh((x + (x' - x) * maa_x) W1) W2_i)     for i in w, k, v, r, g
    o_t = r_t^T (S_{t-1} + diag(u) k_t v_t^T)                               u is time_faaaa, the bonus
    S_t = diag(w_t) S_{t-1} + k_t v_t^T                                     w = exp(-exp(time_decay + tanh(x_w D1) D2))
    y   = W_o (norm(o) * silu(x_g W_g))                                     the norm is over each head

Channel mix: y = sigmoid(x_r W_r) * (relu(x_k W_k)^2 W_v), x_r and x_k interpolated with fixed weights.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from everlong.models._linear import Linear
from everlong.models._norms import LayerNorm
from everlong.models.config import RWKV6Config
from everlong.models.language_model import LanguageModel
from everlong.ops.backends import GatedLinearAttention, Interpolation
from everlong.ops.products import linear
from everlong.state import LeafSpec


class TimeMix(nn.Module):
    """Token shift, five interpolations, recurrence with a bonus, norm, output gate, projection."""

    def __init__(self, config: RWKV6Config, layer: int, *, backend: str):
        super().__init__()
        self.config = config
        width, keys, values = config.d_model, config.key_width, config.value_width
        mix, decay = config.proj_low_rank_dim, config.gate_low_rank_dim
        self.time_maa_x = nn.Parameter(torch.empty(width))
        self.time_maa_w = nn.Parameter(torch.empty(width))
        self.time_maa_k = nn.Parameter(torch.empty(width))
        self.time_maa_v = nn.Parameter(torch.empty(width))
        self.time_maa_r = nn.Parameter(torch.empty(width))
        self.time_maa_g = nn.Parameter(torch.empty(width))
        self.time_maa_w1 = nn.Parameter(torch.empty(width, 5 * mix))
        self.time_maa_w2 = nn.Parameter(torch.empty(5, mix, width))
        self.time_decay = nn.Parameter(torch.empty(keys))
        self.time_decay_w1 = nn.Parameter(torch.empty(width, decay))
        self.time_decay_w2 = nn.Parameter(torch.empty(decay, keys))
        self.time_faaaa = nn.Parameter(torch.empty(config.nheads, config.headdim))
        self.receptance = Linear(width, keys, bias=False)
        self.key = Linear(width, keys, bias=False)
        self.value = Linear(width, values, bias=False)
        self.gate = Linear(width, values, bias=False)
        self.output = Linear(values, width, bias=False)
        self.ln_x = LayerNorm(values, epsilon=config.group_norm_epsilon, groups=config.nheads, backend=backend)
        self.interpolation = Interpolation(backend)
        self.recurrence = GatedLinearAttention(backend)
        self.reset_parameters(layer)

    def reset_parameters(self, layer: int) -> None:
        """The published initialisation, which depends on the layer's depth."""
        n_layer, keys = self.config.n_layer, self.config.key_width
        depth, rest = layer / max(n_layer - 1, 1), 1 - layer / n_layer  # from 0 to 1, from 1 to almost 0
        channel = torch.arange(self.config.d_model) / self.config.d_model
        key = torch.arange(keys) / max(keys - 1, 1)
        with torch.no_grad():
            for mixed in (self.time_maa_x, self.time_maa_w, self.time_maa_k):
                mixed.copy_(1 - channel**rest)
            self.time_maa_v.copy_(1 - channel**rest - 0.3 * depth)
            for mixed in (self.time_maa_r, self.time_maa_g):
                mixed.copy_(1 - channel ** (0.5 * rest))
            slowest, fastest = self.config.time_decay_range
            self.time_decay.copy_(slowest + (fastest - slowest) * key ** (0.7 + 1.3 * depth))
            zigzag = ((torch.arange(keys) + 1) % 3 - 1) * 0.1
            self.time_faaaa.copy_((depth * (1 - key) + zigzag).view_as(self.time_faaaa))
            for first, second in ((self.time_maa_w1, self.time_maa_w2), (self.time_decay_w1, self.time_decay_w2)):
                first.zero_()
                second.uniform_(-0.01, 0.01)
            self.ln_x.weight.fill_(((1 + layer) / n_layer) ** 0.7)
            for projection, gain in ((self.receptance, 1.0), (self.key, 0.1), (self.value, 1.0), (self.gate, 0.1)):
                nn.init.orthogonal_(projection.weight, gain=gain)
            self.output.weight.zero_()

    def leaves(self, layer: int, dtype: torch.dtype) -> list[LeafSpec]:
        """A matrix a head, and the last input."""
        config = self.config
        wide = torch.promote_types(dtype, torch.float32)
        matrix = (config.nheads, config.headdim, config.value_width // config.nheads)
        return [
            LeafSpec(layer=layer, name="recurrent", role="recurrent", shape=matrix, dtype=wide),
            LeafSpec(layer=layer, name="shift", role="shift", shape=(config.d_model,), dtype=dtype),
        ]

    def interpolate(
        self, x: Float[Tensor, "B T C"], shift: Float[Tensor, "B C"], resets: Bool[Tensor, "B T"] | None
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """The inputs of the decay, key, value, receptance and gate, each [B, T, C], and the last input."""
        fixed = (self.time_maa_w, self.time_maa_k, self.time_maa_v, self.time_maa_r, self.time_maa_g)
        (mixed,), _ = self.interpolation(x, [self.time_maa_x], shift, resets)
        mixed = torch.tanh(linear(mixed, self.time_maa_w1.mT)).unflatten(-1, (5, -1))
        changes = [linear(mixed[:, :, i], self.time_maa_w2[i].mT) for i in range(5)]
        return self.interpolation(x, fixed, shift, resets, changes)

    def forward(
        self, x: Float[Tensor, "B T C"], state: dict[str, Tensor], resets: Bool[Tensor, "B T"] | None
    ) -> tuple[Float[Tensor, "B T C"], dict[str, Tensor]]:
        """Mixes x from the layer's state."""
        heads, wide = self.config.nheads, state["recurrent"].dtype
        (x_w, x_k, x_v, x_r, x_g), shift = self.interpolate(x, state["shift"], resets)
        decay = self.time_decay + linear(torch.tanh(linear(x_w, self.time_decay_w1.mT)), self.time_decay_w2.mT)
        o, matrix = self.recurrence(
            q=self.receptance(x_r).unflatten(-1, (heads, -1)),
            k=self.key(x_k).unflatten(-1, (heads, -1)),
            v=self.value(x_v).unflatten(-1, (heads, -1)),
            log_decay=-decay.to(wide).exp().unflatten(-1, (heads, -1)),
            initial_state=state["recurrent"],
            bonus=self.time_faaaa,
            resets=resets,
        )
        y = self.output(self.ln_x(o.flatten(-2), self.gate(x_g)))
        return y, {"recurrent": matrix, "shift": shift}


class ChannelMix(nn.Module):
    """A squared-relu MLP with a gate over the token shift; its state is its own last input."""

    def __init__(self, config: RWKV6Config, layer: int, *, backend: str):
        super().__init__()
        self.config = config
        self.time_maa_k = nn.Parameter(torch.empty(config.d_model))
        self.time_maa_r = nn.Parameter(torch.empty(config.d_model))
        self.key = Linear(config.d_model, config.mlp_width, bias=False)
        self.receptance = Linear(config.d_model, config.d_model, bias=False)
        self.value = Linear(config.mlp_width, config.d_model, bias=False)
        self.interpolation = Interpolation(backend)
        channel = torch.arange(config.d_model) / config.d_model
        with torch.no_grad():  # the published initialisation
            for mixed in (self.time_maa_k, self.time_maa_r):
                mixed.copy_(1 - channel ** (1 - layer / config.n_layer))
            nn.init.orthogonal_(self.key.weight)
            self.receptance.weight.zero_()
            self.value.weight.zero_()

    def leaves(self, layer: int, dtype: torch.dtype) -> list[LeafSpec]:
        """The last input, beside the time mix's own."""
        return [LeafSpec(layer=layer, name="mlp_shift", role="shift", shape=(self.config.d_model,), dtype=dtype)]

    def forward(
        self, x: Float[Tensor, "B T C"], state: dict[str, Tensor], resets: Bool[Tensor, "B T"] | None
    ) -> tuple[Float[Tensor, "B T C"], dict[str, Tensor]]:
        """Mixes the channels of x and of the input before it."""
        weights = (self.time_maa_k, self.time_maa_r)
        (x_k, x_r), shift = self.interpolation(x, weights, state["mlp_shift"], resets)
        inner = F.relu(self.key(x_k)).square()
        return torch.sigmoid(self.receptance(x_r)) * self.value(inner), {"mlp_shift": shift}


class RWKV6(LanguageModel):
    """The RWKV-6 language model."""

    def __init__(self, config: RWKV6Config, *, backend: str = "auto"):
        super().__init__(
            config,
            lambda layer: TimeMix(config, layer, backend=backend),
            mlp=lambda layer: ChannelMix(config, layer, backend=backend),
            norm=LayerNorm,
            embedding_norm=True,
            backend=backend,
        )
        if not config.tie_embeddings:  # as published; a tied matrix keeps the skeleton's initialisation
            nn.init.uniform_(self.backbone.embedding.weight, -1e-4, 1e-4)
            rows, width = self.lm_head.weight.shape
            nn.init.orthogonal_(self.lm_head.weight, gain=0.5 * math.sqrt(max(rows / width, 1)))
