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
class StatePassingConfig(InterventionConfig):
    """State passing (arXiv 2507.02782): rows start from the final states of the previous, unrelated batch."""

    reset_probability: float = 0.1
    """Chance that a row starts from zero all the same; a state is passed on 1 / this many times on average (the paper's
    value is 0.1)."""
    passed_roles: tuple[PassedRole, ...] = ROLES
    """Parts of the state that are passed; the others start from zero (the paper does not say which it passes)."""

    def __post_init__(self) -> None:
        if not 0 <= self.reset_probability <= 1:
            raise EverlongError(f"reset_probability is {self.reset_probability}; it must lie between 0 and 1")
        unknown = [role for role in self.passed_roles if role not in ROLES]
        if unknown or not self.passed_roles:
            raise EverlongError(
                f"passed_roles is {', '.join(map(str, self.passed_roles)) or 'empty'}; give one or more of "
                f"{', '.join(ROLES)} (to pass nothing, take the method zero)"
            )
