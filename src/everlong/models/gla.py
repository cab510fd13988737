"""Gated linear attention (Yang et al. 2024, arXiv 2312.06635, section 4.4): one decay a head and key channel.

Follows flash-linear-attention 0.6.0 (fla/layers/gla.py, fla/modules/mlp.py), parameter names within a layer included:

    S_t = diag(alpha_t) S_{t-1} + k_t v_t^T         log alpha = logsigmoid(W2 W1 x + b) / 16
    o_t = (q_t / sqrt(K))^T S_t
    y   = W_o (norm(o) * silu(W_g x))               the norm is over each head
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from everlong.models._linear import Linear
from everlong.models._norms import RMSNorm
from everlong.models.config import GLAConfig
from everlong.models.language_model import LanguageModel
from everlong.ops.backends import GatedLinearAttention, ShortConvolution
from everlong.state import LeafSpec


class GLAMixer(nn.Module):
    """Projections, optional short convolutions, recurrence, norm, output gate, projection."""

    def __init__(self, config: GLAConfig, *, backend: str):
        super().__init__()
        self.config = config
        width, keys, values = config.d_model, config.key_width, config.value_width
        self.q_proj = Linear(width, keys, bias=False)
        self.k_proj = Linear(width, keys, bias=False)
        self.v_proj = Linear(width, values, bias=False)
        self.g_proj = Linear(width, values, bias=False)
        if config.use_short_conv:
            for name, channels in (("q_conv1d", keys), ("k_conv1d", keys), ("v_conv1d", values)):
                self.add_module(name, nn.Conv1d(channels, channels, config.conv_size, groups=channels, bias=False))
            self.convolution = ShortConvolution(backend)
        self.gk_proj = nn.Sequential(
            Linear(width, config.gate_low_rank_dim, bias=False), Linear(config.gate_low_rank_dim, keys)
        )
        self.g_norm = RMSNorm(values // config.num_heads, epsilon=config.norm_epsilon, backend=backend)
        self.o_proj = Linear(values, width, bias=False)
        self.recurrence = GatedLinearAttention(backend)

    def leaves(self, layer: int, dtype: torch.dtype) -> list[LeafSpec]:
        """A matrix a head, and where there are convolutions their last inputs (those of q, k and v side by side)."""
        config = self.config
        keys, values, heads = config.key_width, config.value_width, config.num_heads
        wide = torch.promote_types(dtype, torch.float32)
        matrix = (heads, keys // heads, values // heads)
        found = [LeafSpec(layer=layer, name="recurrent", role="recurrent", shape=matrix, dtype=wide)]
        if config.use_short_conv:
            window = (config.conv_size - 1, 2 * keys + values)
            found.append(LeafSpec(layer=layer, name="convolution", role="convolution", shape=window, dtype=dtype))
        return found

    def forward(
        self, x: Float[Tensor, "B T C"], state: dict[str, Tensor], resets: Bool[Tensor, "B T"] | None
    ) -> tuple[Float[Tensor, "B T C"], dict[str, Tensor]]:
        """Mixes x from the layer's state."""
        heads, final = self.config.num_heads, {}
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.config.use_short_conv:
            filters = torch.cat(tuple(self.get_parameter(f"{name}_conv1d.weight") for name in "qkv"))
            inputs = torch.cat([q, k, v], dim=-1)
            mixed, final["convolution"] = self.convolution(inputs, filters, None, state["convolution"], resets)
            q, k, v = mixed.split([q.shape[-1], k.shape[-1], v.shape[-1]], dim=-1)
        gate_logits = self.gk_proj(x).to(state["recurrent"].dtype)
        log_decay = F.logsigmoid(gate_logits) / self.config.gate_logit_normalizer
        q, k, v, log_decay, gate = (m.unflatten(-1, (heads, -1)) for m in (q, k, v, log_decay, self.g_proj(x)))
        o, final["recurrent"] = self.recurrence(
            q=q * q.shape[-1] ** -0.5,
            k=k,
            v=v,
            log_decay=log_decay,
            initial_state=state["recurrent"],
            resets=resets,
        )
        return self.o_proj(self.g_norm(o, gate).flatten(-2)), final


class GatedMLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)); no state."""

    def __init__(self, config: GLAConfig):
        super().__init__()
        self.gate_proj = Linear(config.d_model, config.mlp_width, bias=False)
        self.up_proj = Linear(config.d_model, config.mlp_width, bias=False)
        self.down_proj = Linear(config.mlp_width, config.d_model, bias=False)

    def leaves(self, layer: int, dtype: torch.dtype) -> list[LeafSpec]:
        """None."""
        return []

    def forward(
        self, x: Float[Tensor, "B T C"], state: dict[str, Tensor], resets: Bool[Tensor, "B T"] | None
    ) -> tuple[Float[Tensor, "B T C"], dict[str, Tensor]]:
        """Each token alone."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x)), {}


class GLA(LanguageModel):
    """The gated linear attention language model."""

    def __init__(self, config: GLAConfig, *, backend: str = "auto"):
        super().__init__(
            config, lambda _: GLAMixer(config, backend=backend), mlp=lambda _: GatedMLP(config), backend=backend
        )
        for module in self.modules():  # as FLAPreTrainedModel._init_weights does, whose initializer_range is 0.02
            if isinstance(module, nn.Linear | nn.Conv1d):
                nn.init.normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
