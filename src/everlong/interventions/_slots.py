"""What is carried from one step to the next: a state and its age in each slot, that is, in each place of the batch."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from everlong.errors import EverlongError
from everlong.interventions._protocol import Value
from everlong.state import RecurrentState, StateSpec

LEAF = "leaf."


class Slots:
    """Final states by global row; a row that was never put is zero, and so are leaves of other roles than those kept.

    Args:
        roles: the roles of the leaves that are kept.
    """

    def __init__(self, roles: Iterable[str]):
        self._roles = frozenset(roles)
        self._rows = torch.empty(0, dtype=torch.int64)
        self._ages = torch.empty(0, dtype=torch.int64)
        self._leaves: dict[str, Tensor] = {}

    @property
    def rows(self) -> Int[Tensor, " B"]:
        """Those that are kept here."""
        return self._rows

    def put(self, rows: Int[Tensor, " B"], state: RecurrentState, ages: Int[Tensor, " B"]) -> None:
        """Keeps the states of rows, detached, in place of what they held."""
        leaves = {leaf.path: _own(tensor) for leaf, tensor in state.items() if leaf.role in self._roles}
        others = ~torch.isin(self._rows, rows)
        if others.any():  # the batch comes in several parts
            rows = torch.cat([self._rows[others], rows])
            ages = torch.cat([self._ages[others], ages])
            leaves = {path: torch.cat([self._leaves[path][others], tensor]) for path, tensor in leaves.items()}
        self._rows, self._ages, self._leaves = rows, ages, leaves

    def take(
        self, spec: StateSpec, rows: Int[Tensor, " B"], device: torch.device
    ) -> tuple[RecurrentState, Int[Tensor, " B"]]:
        """The states of rows and their ages; what is given is still kept, and must not be changed in place."""
        if not len(self._rows):
            return spec.zeros(len(rows), device), torch.zeros(len(rows), dtype=torch.int64)
        leaves = []
        for leaf in spec.leaves:
            if leaf.role not in self._roles:
                leaves.append(torch.zeros(len(self._rows), *leaf.shape, dtype=leaf.dtype, device=device))
            elif leaf.path in self._leaves:
                leaves.append(self._leaves[leaf.path].to(device))
            else:
                raise EverlongError(f"the carried states are another model's: they have no leaf {leaf.path}")
        state = RecurrentState(spec, tuple(leaves))
        if torch.equal(rows, self._rows):
            return state, self._ages
        found = rows.unsqueeze(1) == self._rows
        place, absent = found.int().argmax(1), ~found.any(1)
        return state.rows(place.to(device)).reset(absent.to(device)), self._ages[place].masked_fill(absent, 0)

    def forget(self, rows: Int[Tensor, " B"]) -> int:
        """Lets rows be zero; returns how many of them there are here."""
        gone = torch.isin(self._rows, rows).nonzero().squeeze(1)
        self._ages = self._ages.index_fill(0, gone, 0)
        self._leaves = {path: leaf.index_fill(0, gone.to(leaf.device), 0) for path, leaf in self._leaves.items()}
        return len(gone)

    def everywhere(
        self, spec: StateSpec, device: torch.device, sum_over_processes: Callable[[Tensor], Tensor]
    ) -> tuple[RecurrentState, Int[Tensor, " B"]] | None:
        """The states of all rows over all processes, in the order of the rows, and their ages; None: there are none.

        Every process holds the whole batch's states then. Each gives its own rows and zero for the others, so that
        what is summed is what was there, to the bit; in float32 at least, which every process group can sum.
        """
        rows = self._rows
        count = int(sum_over_processes(torch.tensor([len(rows)])))
        if not count:
            return None
        mine, _ = self.take(spec, rows, device)
        places = rows.to(device)

        def whole(leaf: Tensor, own: Tensor) -> Tensor:
            wide = torch.promote_types(leaf.dtype, torch.float32)
            return sum_over_processes(leaf.to(wide).index_copy(0, places, own.to(wide))).to(leaf.dtype)

        leaves = spec.zeros(count, device).zip(mine, whole)
        return leaves, self._ages_of(count, sum_over_processes)

    def ages(self, sum_over_processes: Callable[[Tensor], Tensor]) -> Int[Tensor, " B"]:
        """Of the states that are kept over all processes, in the order of the rows."""
        return self._ages_of(int(sum_over_processes(torch.tensor([len(self._rows)]))), sum_over_processes)

    def _ages_of(self, count: int, sum_over_processes: Callable[[Tensor], Tensor]) -> Int[Tensor, " B"]:
        return sum_over_processes(torch.zeros(count, dtype=torch.int64).index_copy(0, self._rows, self._ages))

    def state_dict(self) -> dict[str, Value]:
        """What is kept, flat."""
        return {"rows": self._rows, "ages": self._ages, **{LEAF + path: leaf for path, leaf in self._leaves.items()}}

    def load_state_dict(self, values: Mapping[str, Value]) -> None:
        """Goes on from where ``state_dict`` was taken."""
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        self._rows, self._ages = tensors.pop("rows"), tensors.pop("ages")
        self._leaves = {name.removeprefix(LEAF): tensor for name, tensor in tensors.items()}

    @staticmethod
    def regrouped(parts: Sequence[Mapping[str, Value]], rows: Int[Tensor, " B"]) -> dict[str, Value]:
        """Of what several processes kept, what belongs to ``rows``."""
        held = [{name: torch.as_tensor(value) for name, value in part.items()} for part in parts]
        tensors = {name: torch.cat([part[name] for part in held]) for name in held[0]}
        wanted = torch.isin(tensors["rows"], rows)
        return {name: tensor[wanted] for name, tensor in tensors.items()}


def _own(tensor: Tensor) -> Tensor:
    """The values without their graph, contiguous (as a resume finds them), and not holding on to a larger tensor."""
    tensor = tensor.detach().contiguous()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()
