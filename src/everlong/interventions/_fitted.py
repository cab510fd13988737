"""What the fitted noises share: moments of final states, kept by the paper's Eqs. 5 and 6, over all processes."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from everlong.interventions._mixture import Mixed, new
from everlong.interventions._protocol import Value
from everlong.interventions.config import FittedConfig
from everlong.state import RecurrentState, StateSpec

NOTHING = torch.empty(0, dtype=torch.float64)


class Fitted(Mixed):
    """Each row starts from noise whose moments m are fitted to the final states h_T of the batches before.

        m <- (1 - b) m(h_T) + b m

    h_T are the final states of the rows that noise has started and that no reset inside has started anew: the noise of
    one step is read on from in the next, so the moments climb. The first step starts from zero and its moments are
    taken as they are. Moments change between steps, when all parts of a batch were observed. They come from sums over
    rows, which are added up over all processes, so that the result does not depend on how the rows are spread. Nothing
    was read into a state of noise, so its age is zero, and exposure counts no older ones.

    Args:
        config: its settings.
        seed: of its draws, 0 or more.
    """

    def __init__(self, config: FittedConfig, *, seed: int):
        super().__init__(config, seed=seed)
        self._history = config.history_weight
        self._moments: dict[str, Tensor] = {}
        self._sums = NOTHING  # of the step that is being observed: rows, then what the method sums over them
        self._step = -1  # the step that was started last
        self._length = 0  # of its rows, if the loop has said so

    @abstractmethod
    def sums(self, final_state: RecurrentState, counted: Bool[Tensor, " B"]) -> Float[Tensor, " N"]:
        """Sums over the rows that count, in float64 on the CPU, flat."""

    @abstractmethod
    def moments(self, means: Float[Tensor, " N"], spec: StateSpec) -> dict[str, Tensor]:
        """The moments of a batch, by name, from the means of what ``sums`` summed."""

    @abstractmethod
    def noise(self, spec: StateSpec, step: int, rows: Int[Tensor, " B"], device: torch.device) -> RecurrentState:
        """Noise of the moments so far."""

    def resets(self, step: int, rows: Int[Tensor, " B"], length: int) -> None:
        """Nowhere of its own; notes how long rows are, for one that ends younger has been started anew inside."""
        self._length = length

    def begin(
        self, starts: Bool[Tensor, " B"], spec: StateSpec, step: int, rows: Int[Tensor, " B"]
    ) -> tuple[RecurrentState, Int[Tensor, " B"]]:
        """Noise of the moments so far. Where a row begins in its document does not matter here."""
        if step != self._step:
            self._fold(spec)
            self._step = step
        state = self.noise(spec, step, rows, starts.device) if self._moments else spec.zeros(len(rows), starts.device)
        return state, new(rows)

    def observe(self, final_state: RecurrentState, ages: Int[Tensor, " B"]) -> None:
        """Adds these rows to the sums of the step."""
        whole = ages >= self._length
        counted = whole & ~self._zeroed if self._moments else whole
        sums = torch.cat([counted.double().sum().view(1), self.sums(final_state.detach(), counted)])
        self._sums = self._sums + sums if len(self._sums) else sums

    def _fold(self, spec: StateSpec) -> None:
        """Eqs. 5 and 6, with what the step before has shown, on all processes together."""
        if not len(self._sums):
            return
        sums = self.sum_over_processes(self._sums)
        self._sums = NOTHING
        if not sums[0]:  # every row started from zero
            return
        fresh, b = self.moments(sums[1:] / sums[0], spec), self._history
        if self._moments and b:
            fresh = {name: (1 - b) * moment + b * self._moments[name] for name, moment in fresh.items()}
        self._moments = fresh

    def state_dict(self) -> dict[str, Value]:
        """The moments, and the sums of the step that was observed last: on several processes, those of this one."""
        return {**self._moments, "sums": self._sums, "step": self._step}

    def load_state_dict(self, values: Mapping[str, Value]) -> None:
        """Goes on from where ``state_dict`` was taken."""
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        self._sums, self._step = tensors.pop("sums"), int(values["step"])
        self._moments = tensors

    def regrouped(self, parts: Sequence[Mapping[str, Value]], rows: Int[Tensor, " B"]) -> Mapping[str, Value] | None:
        """The moments, which all processes share, and the sums of all: n processes that have them have their means."""
        return {**parts[0], "sums": torch.stack([torch.as_tensor(part["sums"]) for part in parts]).sum(0)}
