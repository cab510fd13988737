"""The skeleton that every architecture shares: embedding, residual blocks of one mixer each, final norm, head.

Parameter names are those of state-spaces/mamba. An architecture brings a mixer: a module with ``leaves(dtype)``, the
leaves of its state, and ``forward(x, state, resets) -> (y, final state)``, where the state is a dictionary of that
layer's leaves by name.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from everlong.errors import EverlongError
from everlong.models.config import LanguageModelConfig
from everlong.ops.backends import Recurrence
from everlong.state import LeafSpec, RecurrentState, StateSpec


@runtime_checkable
class Mixer(Protocol):
    """What the skeleton asks of an architecture's sequence mixer."""

    def leaves(self, layer: int, dtype: torch.dtype) -> list[LeafSpec]:
        """The leaves of this layer's state, for activations of ``dtype``."""
        ...

    def __call__(self, x: Tensor, state: dict[str, Tensor], resets: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Mixes x [B, T, C] from the layer's state, and returns the layer's final state beside the output."""
        ...


@dataclass(frozen=True)
class LanguageModelOutput:
    """What a model returns.

    Attributes:
        logits: [B, T, S], S the padded vocabulary.
        state: the complete state after the last token.
    """

    logits: Tensor
    state: RecurrentState


class RMSNorm(nn.Module):
    """x / rms(x) * weight over groups of the last axis, in float32 or wider; gated: x is first times silu(gate)."""

    def __init__(self, width: int, *, epsilon: float, groups: int = 1):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon
        self.groups = groups

    def forward(self, x: Float[Tensor, "B T C"], gate: Float[Tensor, "B T C"] | None = None) -> Float[Tensor, "B T C"]:
        """Normalises; the result is in the weight's dtype."""
        wide = torch.promote_types(x.dtype, torch.float32)
        x = x.to(wide) if gate is None else x.to(wide) * F.silu(gate.to(wide))
        grouped = x.unflatten(-1, (self.groups, -1)) if self.groups > 1 else x.unsqueeze(-2)
        scale = (grouped.square().mean(-1, keepdim=True) + self.epsilon).rsqrt()
        return (grouped * scale).flatten(-2).to(self.weight.dtype) * self.weight


class Block(nn.Module):
    """x + mixer(norm(x))."""

    def __init__(self, config: LanguageModelConfig, mixer: Mixer):
        super().__init__()
        self.norm = RMSNorm(config.d_model, epsilon=config.norm_epsilon)
        self.mixer = mixer

    def forward(self, x: Tensor, state: dict[str, Tensor], resets: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        """One residual step from the layer's state."""
        y, final = self.mixer(self.norm(x), state, resets)
        return x + y, final


class Backbone(nn.Module):
    """Embedding, blocks and final norm."""

    def __init__(self, config: LanguageModelConfig, mixer: Callable[[int], Mixer]):
        super().__init__()
        self.embedding = nn.Embedding(config.padded_vocab_size, config.d_model)
        self.layers = nn.ModuleList(Block(config, mixer(layer)) for layer in range(config.n_layer))
        self.norm_f = RMSNorm(config.d_model, epsilon=config.norm_epsilon)

    @property
    def blocks(self) -> Iterator[Block]:
        """The layers, first to last."""
        return (cast(Block, layer) for layer in self.layers)


class LanguageModel(nn.Module):
    """A recurrent language model: split-invariant, with an explicit state in and out.

    Args:
        config: the architecture's configuration.
        mixer: makes the mixer of a layer.
        backend: which backend the recurrences take ("auto" or a name from ``everlong.ops.backends``).
    """

    def __init__(self, config: LanguageModelConfig, mixer: Callable[[int], Mixer], *, backend: str):
        super().__init__()
        self.config = config
        self.backend = backend
        self.backbone = Backbone(config, mixer)
        self.lm_head = nn.Linear(config.d_model, config.padded_vocab_size, bias=False)
        nn.init.normal_(self.backbone.embedding.weight, std=0.02)
        if config.tie_embeddings:
            self.lm_head.weight = self.backbone.embedding.weight

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the activations."""
        return self.backbone.embedding.weight.dtype

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.backbone.embedding.weight.device

    @property
    def state_spec(self) -> StateSpec:
        """The leaves of this model's state, at its present dtype."""
        leaves = [leaf for i, block in enumerate(self.backbone.blocks) for leaf in block.mixer.leaves(i, self.dtype)]
        return StateSpec(architecture=self.config.architecture, leaves=tuple(leaves))

    def zero_state(self, batch_size: int) -> RecurrentState:
        """The state that a document starts from."""
        return self.state_spec.zeros(batch_size, self.device)

    def backend_in_use(self) -> str:
        """The name of the backend that serves this model where it is now, for records."""
        recurrence = next(module for module in self.modules() if isinstance(module, Recurrence))
        return recurrence.choose(self.device, torch.promote_types(self.dtype, torch.float32))

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        state: RecurrentState | None = None,
        *,
        resets: Bool[Tensor, "B T"] | None = None,
    ) -> LanguageModelOutput:
        """Reads tokens from a state.

        Args:
            tokens: ids below vocab_size; T is at least 1 and otherwise free.
            state: what was read before; None: nothing (the zero state).
            resets: True at a document's first token, which then starts from zero inside a row.

        Returns:
            Logits for every token's successor, and the state after the last token. Running x and then y with the
            carried state equals running xy, in logits, final state and gradients.
        """
        batch_size, length = tokens.shape
        if length == 0:
            raise EverlongError("no tokens: the input is [B, 0], at least one token a row is needed")
        spec = self.state_spec
        if state is None:
            state = spec.zeros(batch_size, tokens.device)
        else:
            state.check(spec, batch_size)
        x = self.backbone.embedding(tokens)
        if self.config.residual_in_fp32:
            x = x.to(torch.promote_types(x.dtype, torch.float32))
        finals: list[Tensor] = []
        for index, block in enumerate(self.backbone.blocks):
            x, final = block(x, state.layer(index), resets)
            finals.extend(final[name] for name in spec.by_layer[index])
        logits = self.lm_head(self.backbone.norm_f(x))
        return LanguageModelOutput(logits, RecurrentState(spec, tuple(finals)))
