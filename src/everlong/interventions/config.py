"""Settings of the interventions, free of torch."""

from dataclasses import dataclass
from typing import Literal

from everlong.errors import EverlongError

PassedRole = Literal["recurrent", "convolution", "shift"]
ROLES: tuple[PassedRole, ...] = ("recurrent", "convolution", "shift")


@dataclass(frozen=True, kw_only=True)
class InterventionConfig:
    """Settings of an intervention that has none; the others extend it."""


@dataclass(frozen=True, kw_only=True)
class ZeroConfig(InterventionConfig):
    """The control: every row starts from the zero state."""


@dataclass(frozen=True, kw_only=True)
class RandomNoiseConfig(InterventionConfig):
    """Random noise (arXiv 2507.02782): rows start from iid N(0, scale^2) in the recurrent parts of the state."""

    scale: float = 0.1
    """Standard deviation, one for all layers and heads; to be swept, for the paper does not say which it took. Between
    the spread of a small Mamba-2's states after one training length (0.03) and after sixteen (0.17)."""
    zero_share: float = 0.0
    """Share of rows that start from zero all the same (the paper does not say; equal over the arms of a comparison)."""

    def __post_init__(self) -> None:
        if not 0 <= self.scale < float("inf"):
            raise EverlongError(f"scale is {self.scale}; it must be at least 0 and finite")
        _check_share("zero_share", self.zero_share)


@dataclass(frozen=True, kw_only=True)
class FittedNoiseConfig(InterventionConfig):
    """Fitted noise (arXiv 2507.02782, Eqs. 5-6): rows start from noise of each head's own mean and variance."""

    history_weight: float = 0.1
    """b: what the moments so far weigh; those of the last batch weigh 1 - b (the paper's value is 0.1)."""
    zero_share: float = 0.0
    """Share of rows that start from zero all the same (the paper does not say; equal over the arms of a comparison).
    The moments are those of the other rows."""

    def __post_init__(self) -> None:
        if not 0 <= self.history_weight < 1:
            raise EverlongError(f"history_weight is {self.history_weight}; it must be at least 0 and below 1")
        _check_share("zero_share", self.zero_share)


@dataclass(frozen=True, kw_only=True)
class TBTTConfig(InterventionConfig):
    """Truncated backpropagation through time: rows start where the chunk before them in their document ended."""

    reset_probability: float = 0.0
    """Chance that a row starts from zero all the same, not only at a document's beginning."""

    def __post_init__(self) -> None:
        _check_share("reset_probability", self.reset_probability)


@dataclass(frozen=True, kw_only=True)
class StatePassingConfig(InterventionConfig):
    """State passing (arXiv 2507.02782): rows start from the final states of the previous, unrelated batch."""

    reset_probability: float = 0.1
    """Chance that a row starts from zero all the same; a state is passed on 1 / this many times on average (the paper's
    value is 0.1)."""
    passed_roles: tuple[PassedRole, ...] = ROLES
    """Parts of the state that are passed; the others start from zero (the paper does not say which it passes)."""

    def __post_init__(self) -> None:
        _check_share("reset_probability", self.reset_probability)
        unknown = [role for role in self.passed_roles if role not in ROLES]
        if unknown or not self.passed_roles:
            raise EverlongError(
                f"passed_roles is {', '.join(map(str, self.passed_roles)) or 'empty'}; give one or more of "
                f"{', '.join(ROLES)} (to pass nothing, take the method zero)"
            )


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise EverlongError(f"{name} is {value}; it must lie between 0 and 1")
