"""The explicit state of a recurrent language model: what it is made of, and what can be done with it.

A state is an immutable, complete and differentiable value: everything that a model needs to go on reading as if it had
never stopped. It lives in no module. Its leaves are floating tensors, batch first, without counters:

    role         canonical shape    what it is
    recurrent    [B, H, K, V]       matrices of the recurrence (Mamba-1: [B, C, N]); fp32, float64 in a float64 model
    convolution  [B, W, C]          the last W = d_conv - 1 inputs of a short convolution, oldest first
    shift        [B, C]             the last input of a token shift
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Bool, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.utils import _pytree

from everlong.errors import EverlongError

Role = Literal["recurrent", "convolution", "shift"]
STATE_FORMAT = "everlong-state-1"


@dataclass(frozen=True, kw_only=True)
class LeafSpec:
    """One leaf: where it belongs, what it is, and its shape without the batch axis."""

    layer: int
    name: str
    role: Role
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def path(self) -> str:
        """The leaf's name in files and messages, such as ``layers.3.recurrent``."""
        return f"layers.{self.layer}.{self.name}"


@dataclass(frozen=True, kw_only=True)
class StateSpec:
    """The leaves of a model's state, in order, and the architecture that they belong to."""

    architecture: str
    leaves: tuple[LeafSpec, ...]

    @cached_property
    def by_layer(self) -> dict[int, dict[str, int]]:
        """Layer -> leaf name -> index into ``leaves``."""
        table: dict[int, dict[str, int]] = {}
        for index, leaf in enumerate(self.leaves):
            table.setdefault(leaf.layer, {})[leaf.name] = index
        return table

    def zeros(self, batch_size: int, device: torch.device | str | None = None) -> "RecurrentState":
        """The zero state: what a document starts from."""
        leaves = [torch.zeros(batch_size, *leaf.shape, dtype=leaf.dtype, device=device) for leaf in self.leaves]
        return RecurrentState(self, tuple(leaves))


@dataclass(frozen=True, eq=False)
class RecurrentState:
    """An immutable state; every method returns a new one. It is a pytree: torch.utils._pytree sees its leaves.

    Attributes:
        spec: what the leaves are.
        leaves: tensors in the order of ``spec.leaves``, each [B, *leaf.shape].
    """

    spec: StateSpec
    leaves: tuple[Any, ...]

    @property
    def batch_size(self) -> int:
        """Number of rows."""
        return self.leaves[0].shape[0]

    def layer(self, index: int) -> dict[str, Tensor]:
        """One layer's leaves by name, a fresh dictionary."""
        return {name: self.leaves[position] for name, position in self.spec.by_layer.get(index, {}).items()}

    def items(self) -> Iterator[tuple[LeafSpec, Tensor]]:
        """Pairs of specification and tensor."""
        return iter(zip(self.spec.leaves, self.leaves, strict=True))

    def map(self, fn: Callable[[Tensor], Any]) -> "RecurrentState":
        """Applies ``fn`` to every leaf; its results are kept untouched."""
        return RecurrentState(self.spec, tuple(fn(leaf) for leaf in self.leaves))

    def zip(self, other: "RecurrentState", fn: Callable[[Tensor, Tensor], Any]) -> "RecurrentState":
        """Applies ``fn`` to every pair of leaves of two states of one model."""
        if other.spec != self.spec:
            raise EverlongError(f"two states of different models: {self.spec.architecture}, {other.spec.architecture}")
        return RecurrentState(self.spec, tuple(fn(a, b) for a, b in zip(self.leaves, other.leaves, strict=True)))

    def detach(self) -> "RecurrentState":
        """The same values, cut from the graph."""
        return self.map(torch.Tensor.detach)

    def to(self, device: torch.device | str) -> "RecurrentState":
        """The same values on another device; dtypes stay, they are part of the contract."""
        return self.map(lambda leaf: leaf.to(device))

    def rows(self, index: Int[Tensor, " N"] | Bool[Tensor, " B"] | slice) -> "RecurrentState":
        """The rows that ``index`` selects, in its order."""
        return self.map(lambda leaf: leaf[index])

    def scatter(self, index: Int[Tensor, " N"], rows: "RecurrentState") -> "RecurrentState":
        """A state whose rows at ``index`` are replaced by ``rows``, differentiable in both."""
        return self.zip(rows, lambda leaf, new: leaf.index_copy(0, index, new))

    def reset(self, mask: Bool[Tensor, " B"]) -> "RecurrentState":
        """Rows where ``mask`` is True start anew from zero (whatever they held, not-a-number included)."""
        return self.map(lambda leaf: leaf.masked_fill(mask.view(-1, *[1] * (leaf.ndim - 1)), 0))

    def check(self, spec: StateSpec, batch_size: int) -> None:
        """Raises an error that names the first thing in which this state does not fit a model and batch."""
        if self.spec != spec:
            raise EverlongError(f"the state is another model's: {difference(self.spec, spec)}")
        for leaf, tensor in self.items():
            if tuple(tensor.shape) != (batch_size, *leaf.shape):
                raise EverlongError(
                    f"state leaf {leaf.path} has shape {list(tensor.shape)}, the model and batch need "
                    f"{[batch_size, *leaf.shape]}"
                )


def concatenate(states: Sequence[RecurrentState]) -> RecurrentState:
    """One state with the rows of all, in order."""
    leaves = zip(*(state.leaves for state in states), strict=True)
    return RecurrentState(states[0].spec, tuple(torch.cat(tensors) for tensors in leaves))


def difference(found: StateSpec, wanted: StateSpec) -> str:
    """Names the first difference between two specifications, for messages."""
    if found.architecture != wanted.architecture:
        return f"architecture {found.architecture!r}, expected {wanted.architecture!r}"
    if len(found.leaves) != len(wanted.leaves):
        return f"{len(found.leaves)} leaves, expected {len(wanted.leaves)}"
    for ours, theirs in zip(found.leaves, wanted.leaves, strict=True):
        if ours != theirs:
            return (
                f"leaf {ours.path} is {ours.role} {list(ours.shape)} {ours.dtype}, "
                f"expected {theirs.path} {theirs.role} {list(theirs.shape)} {theirs.dtype}"
            )
    return "no difference"


def save_state(state: RecurrentState, path: Path | str, *, tokens_seen: int | None = None) -> None:
    """Writes a state as safetensors: one tensor a leaf, roles and architecture in the metadata."""
    tensors = {leaf.path: tensor.detach().cpu().contiguous() for leaf, tensor in state.items()}
    metadata = {
        "format": STATE_FORMAT,
        "architecture": state.spec.architecture,
        "roles": json.dumps({leaf.path: leaf.role for leaf in state.spec.leaves}),
    }
    if tokens_seen is not None:
        metadata["tokens_seen"] = str(tokens_seen)
    save_file(tensors, str(path), metadata=metadata)


def load_state(path: Path | str, spec: StateSpec) -> RecurrentState:
    """Reads a state for the model that ``spec`` describes.

    Raises:
        EverlongError: the file is missing, torn or no state, or holds another model's state or layout (named).
    """
    if not Path(path).is_file():
        raise EverlongError(f"no state file at {path}")
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
    except SafetensorError as error:
        raise EverlongError(f"{path} cannot be read as a state file: {error}") from error
    if metadata.get("format") != STATE_FORMAT:
        raise EverlongError(f"{path} is no state file: format {metadata.get('format')!r}, expected {STATE_FORMAT!r}")
    found = _spec_of(metadata, tensors)
    order = {leaf.path: leaf for leaf in found.leaves}
    wanted = [leaf.path for leaf in spec.leaves]
    ordered = StateSpec(
        architecture=found.architecture,
        leaves=tuple(order[path] for path in wanted) if set(wanted) == set(order) else found.leaves,
    )
    if ordered != spec:
        raise EverlongError(f"{path} holds the state of another model: {difference(ordered, spec)}")
    return RecurrentState(spec, tuple(tensors[path] for path in wanted))


def _spec_of(metadata: dict[str, str], tensors: dict[str, Tensor]) -> StateSpec:
    leaves = []
    for path, role in json.loads(metadata["roles"]).items():
        _, layer, name = path.split(".", 2)
        tensor = tensors[path]
        leaves.append(
            LeafSpec(layer=int(layer), name=name, role=role, shape=tuple(tensor.shape[1:]), dtype=tensor.dtype)
        )
    return StateSpec(architecture=metadata["architecture"], leaves=tuple(leaves))


_pytree.register_pytree_node(
    RecurrentState,
    lambda state: (list(state.leaves), state.spec),
    lambda leaves, spec: RecurrentState(spec, tuple(leaves)),
    serialized_type_name="everlong.RecurrentState",
)
