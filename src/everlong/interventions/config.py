"""Settings of the interventions, free of torch."""

from dataclasses import dataclass
from typing import Literal

from everlong.errors import EverlongError

PassedRole = Literal["recurrent", "convolution", "shift"]
ROLES: tuple[PassedRole, ...] = ("recurrent", "convolution", "shift")
Permuted = Literal["none", "layers", "heads", "channels", "elements"]


@dataclass(frozen=True, kw_only=True)
class InterventionConfig:
    """Settings of an intervention that has none; the others extend it."""


@dataclass(frozen=True, kw_only=True)
class MixedConfig(InterventionConfig):
    """What all methods that start rows from something else than zero have."""

    reset_probability: float = 0.0
    """Chance that a row starts from zero all the same, drawn for each row and step."""

    def __post_init__(self) -> None:
        _check_share("reset_probability", self.reset_probability)


@dataclass(frozen=True, kw_only=True)
class ZeroConfig(InterventionConfig):
    """The control: every row starts from the zero state."""


@dataclass(frozen=True, kw_only=True)
class LongerContextConfig(InterventionConfig):
    """The control that trains longer rows, and fewer of them, from the zero state: the same scored tokens a step."""

    factor: int = 4
    """Training contexts in a row; the rows of a step are so many times fewer."""

    def __post_init__(self) -> None:
        _check_least("factor", self.factor, 2)


@dataclass(frozen=True, kw_only=True)
class BurnInConfig(MixedConfig):
    """The control that reads a prefix of random length, of the row's own document, without loss before each row."""

    longest_prefix: int = 256
    """Tokens before a row, from which its own prefix, 0 to so many tokens long, is drawn; read beside the budget."""
    gradient: bool = False
    """Whether the gradient goes back into the prefix."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_least("longest_prefix", self.longest_prefix, 1)


@dataclass(frozen=True, kw_only=True)
class RandomNoiseConfig(MixedConfig):
    """Random noise (arXiv 2507.02782): rows start from iid N(0, scale^2) in the recurrent parts of the state."""

    scale: float = 0.1
    """Standard deviation, one for all layers and heads; to be swept, for the paper does not say which it took. Between
    the spread of a small Mamba-2's states after one training length (0.03) and after sixteen (0.17)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.scale < float("inf"):
            raise EverlongError(f"scale is {self.scale}; it must be at least 0 and finite")


@dataclass(frozen=True, kw_only=True)
class FittedConfig(MixedConfig):
    """What the noises that are fitted to final states have. Their moments are those of the rows that noise started."""

    history_weight: float = 0.1
    """b: what the moments so far weigh; those of the last batch weigh 1 - b (the paper's value is 0.1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.history_weight < 1:
            raise EverlongError(f"history_weight is {self.history_weight}; it must be at least 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class FittedNoiseConfig(FittedConfig):
    """Fitted noise (arXiv 2507.02782, Eqs. 5-6): rows start from noise of each head's own mean and variance."""


@dataclass(frozen=True, kw_only=True)
class CorrelatedNoiseConfig(FittedConfig):
    """Noise fitted to each element, with correlations between the elements of a layer: mean + low rank + diagonal."""

    mean: Literal["element", "head"] = "element"
    """Whether each element has its own mean, or all of a head the head's."""
    variance: Literal["element", "head", "none"] = "element"
    """Whether each element has its own variance, all of a head the mean of theirs, or there is no noise at all."""
    rank: int = 8
    """Directions in which the elements of a layer vary together; 0: each for itself. The variances stay the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in (("mean", ("element", "head")), ("variance", ("element", "head", "none"))):
            if getattr(self, name) not in allowed:
                raise EverlongError(f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(allowed)}")
        _check_least("rank", self.rank, 0)
        if self.rank and self.variance != "element":
            raise EverlongError(
                f"rank is {self.rank}, variance {self.variance!r}: a rank above 0 needs variance element"
            )
        if (self.mean, self.variance) == ("head", "head"):
            raise EverlongError("one mean and one variance a head: that is the method fitted_noise")


@dataclass(frozen=True, kw_only=True)
class CarriedConfig(MixedConfig):
    """What the methods have whose rows start from final states that were carried over."""

    prefill_steps: int = 0
    """Steps whose rows are read before the first, without a gradient, as training would read them: so training meets
    states as old as these from its first step on. They are the first of the data, and read beside the budget."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_least("prefill_steps", self.prefill_steps, 0)


@dataclass(frozen=True, kw_only=True)
class TBTTConfig(CarriedConfig):
    """Truncated backpropagation through time: rows start where the chunk before them in their document ended."""

    gradient_horizon_chunks: int = 1
    """Chunks of one training context that a gradient goes back. A row is so many chunks long, and the rows of a step
    are so many times fewer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_least("gradient_horizon_chunks", self.gradient_horizon_chunks, 1)


@dataclass(frozen=True, kw_only=True)
class StatePassingConfig(CarriedConfig):
    """State passing (arXiv 2507.02782): rows start from the final states of the previous, unrelated batch."""

    reset_probability: float = 0.1
    """Chance that a row starts from zero all the same; a state is passed on 1 / this many times on average (the paper's
    value is 0.1)."""
    passed_roles: tuple[PassedRole, ...] = ROLES
    """Parts of the state that are passed; the others start from zero (the paper does not say which it passes)."""
    permuted: Permuted = "none"
    """Which parts of the states are passed to rows of their own, each part to another row: layers, heads, channels or
    elements. Each step down this ladder breaks more of what belongs together, and keeps what each part holds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [role for role in self.passed_roles if role not in ROLES]
        if unknown or not self.passed_roles:
            raise EverlongError(
                f"passed_roles is {', '.join(map(str, self.passed_roles)) or 'empty'}; give one or more of "
                f"{', '.join(ROLES)} (to pass nothing, take the method zero)"
            )
        ladder = ("none", "layers", "heads", "channels", "elements")
        if self.permuted not in ladder:
            raise EverlongError(f"permuted is {self.permuted!r}; it must be one of {', '.join(ladder)}")


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise EverlongError(f"{name} is {value}; it must lie between 0 and 1")


def _check_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise EverlongError(f"{name} is {value}; it must be at least {least}")
