"""The skeleton that every architecture shares: embedding, residual blocks, final norm, head.

Parameter names are those of state-spaces/mamba. An architecture brings a mixer: a module with ``leaves(layer, dtype)``,
the leaves of its state, and ``forward(x, state, resets) -> (y, final state)``, where the state is a dictionary of that
layer's leaves by name. It may bring a second such part for every block ("mlp"), stateless or not.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.utils import _pytree

from everlong.models._linear import Linear
from everlong.models._norms import Norm, RMSNorm
from everlong.models.config import LanguageModelConfig, SamplingConfig
from everlong.ops._inputs import check_length
from everlong.ops.backends import Recurrence
from everlong.state import LeafSpec, RecurrentState, StateSpec

if TYPE_CHECKING:
    from everlong.models.generation import Generated


@runtime_checkable
class Mixer(Protocol):
    """What the skeleton asks of the parts of an architecture's blocks."""

    def leaves(self, layer: int, dtype: torch.dtype) -> list[LeafSpec]:
        """The leaves of this part's state, for activations of ``dtype``; names differ between the parts of a block."""
        ...

    def __call__(self, x: Tensor, state: dict[str, Tensor], resets: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Maps x [B, T, C] from the layer's state, and returns the part's final state beside the output."""
        ...


@dataclass(frozen=True)
class LanguageModelOutput:
    """What a model returns.

    Attributes:
        logits: [B, T, S], S the padded vocabulary: likelihoods are over all of it, and what only pads is never written.
        state: the complete state after the last token.
    """

    logits: Tensor
    state: RecurrentState


_pytree.register_pytree_node(  # what wraps a model from outside (FSDP2) looks for the tensors in what it returns
    LanguageModelOutput,
    lambda output: ([output.logits, output.state], None),
    lambda values, _: LanguageModelOutput(*values),
    serialized_type_name="everlong.LanguageModelOutput",
)


class Block(nn.Module):
    """x + mixer(norm(x)), and where the architecture has a second part, x + mlp(norm2(x)) after it."""

    def __init__(self, norm: Callable[[], Norm], mixer: Mixer, mlp: Mixer | None):
        super().__init__()
        self.norm, self.mixer = norm(), mixer
        self.norm2, self.mlp = (norm(), mlp) if mlp else (None, None)

    @property
    def parts(self) -> list[tuple[Norm, Mixer]]:
        """Norm and function of each residual step."""
        first = (self.norm, self.mixer)
        return [first, (self.norm2, self.mlp)] if self.norm2 and self.mlp else [first]

    def leaves(self, layer: int, dtype: torch.dtype) -> list[LeafSpec]:
        """The leaves of this layer's state."""
        return [leaf for _, part in self.parts for leaf in part.leaves(layer, dtype)]

    def forward(self, x: Tensor, state: dict[str, Tensor], resets: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        """The residual steps from the layer's state."""
        final: dict[str, Tensor] = {}
        for norm, part in self.parts:
            y, leaves = part(norm(x), state, resets)
            x = x + y
            final |= leaves
        return x, final


class Backbone(nn.Module):
    """Embedding (normed where the architecture does so), blocks and final norm."""

    def __init__(
        self,
        config: LanguageModelConfig,
        block: Callable[[int], Block],
        norm: Callable[[], Norm],
        embedding_norm: bool,
    ):
        super().__init__()
        self.embedding = nn.Embedding(config.padded_vocab_size, config.d_model)
        self.embedding_norm = norm() if embedding_norm else nn.Identity()
        self.layers = nn.ModuleList(block(layer) for layer in range(config.n_layer))
        self.norm_f = norm()

    @property
    def blocks(self) -> Iterator[Block]:
        """The layers, first to last."""
        return (cast(Block, layer) for layer in self.layers)


class LanguageModel(nn.Module):
    """A recurrent language model: split-invariant, with an explicit state in and out.

    Args:
        config: the architecture's configuration.
        mixer: makes the mixer of a layer.
        mlp: makes the second part of a layer; None: there is none.
        norm: the norm before every part and after the last block.
        embedding_norm: whether there is one after the embedding too.
        backend: which backend the recurrences take ("auto" or a name from ``everlong.ops.backends``).
    """

    def __init__(
        self,
        config: LanguageModelConfig,
        mixer: Callable[[int], Mixer],
        *,
        backend: str,
        mlp: Callable[[int], Mixer] | None = None,
        norm: type[Norm] = RMSNorm,
        embedding_norm: bool = False,
    ):
        super().__init__()
        self.config = config
        self.backend = backend

        def new_norm() -> Norm:
            return norm(config.d_model, epsilon=config.norm_epsilon, backend=backend)

        def block(layer: int) -> Block:
            return Block(new_norm, mixer(layer), mlp(layer) if mlp else None)

        self.backbone = Backbone(config, block, new_norm, embedding_norm)
        self.lm_head = Linear(config.d_model, config.padded_vocab_size, bias=False)
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
        leaves = [leaf for i, block in enumerate(self.backbone.blocks) for leaf in block.leaves(i, self.dtype)]
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
        x, final = self._read(tokens, state, resets)
        return LanguageModelOutput(self.lm_head(x), final)

    def advance(self, tokens: Int[Tensor, "B T"], state: RecurrentState | None = None) -> LanguageModelOutput:
        """Reads tokens as the call does, and gives the last token's logits alone: [B, 1, S].

        Of a long prompt no other logits are wanted, and at a vocabulary of 50,000 they are most of the memory.
        """
        x, final = self._read(tokens, state, None)
        return LanguageModelOutput(self.lm_head(x[:, -1:]), final)

    def generate(
        self,
        tokens: Int[Tensor, "B T"] | Sequence[Int[Tensor, " _"]],
        state: RecurrentState | None = None,
        max_new_tokens: int = 1,
        *,
        sampling: SamplingConfig | None = None,
        stop_tokens: Collection[int] = (),
        seed: int = 0,
    ) -> "Generated":
        """Continues prompts; see ``everlong.models.generation.generate``."""
        from everlong.models.generation import generate

        return generate(self, tokens, state, max_new_tokens, sampling=sampling, stop_tokens=stop_tokens, seed=seed)

    def _read(
        self, tokens: Tensor, state: RecurrentState | None, resets: Tensor | None
    ) -> tuple[Tensor, RecurrentState]:
        """The normed output of the last block [B, T, C], and the final state."""
        check_length(tokens)
        batch_size = tokens.shape[0]
        spec = self.state_spec
        if state is None:
            state = spec.zeros(batch_size, tokens.device)
        else:
            state.check(spec, batch_size)
        x = self.backbone.embedding_norm(self.backbone.embedding(tokens))
        if self.config.residual_in_fp32:
            x = x.to(torch.promote_types(x.dtype, torch.float32))
        finals: list[Tensor] = []
        for index, block in enumerate(self.backbone.blocks):
            x, final = block(x, state.layer(index), resets)
            finals.extend(final[name] for name in spec.by_layer[index])
        return self.backbone.norm_f(x), RecurrentState(spec, tuple(finals))
