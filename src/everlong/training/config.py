"""Settings of the training loop, free of torch."""

from dataclasses import dataclass, fields
from typing import Literal

from everlong.errors import EverlongError


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """How training is carried out. But for rounding, none of these changes what is trained.

    All but --mixed-precision may be given beside --resume, too, and hold from there on.
    """

    parallel: Literal["ddp", "fsdp"] = "ddp"
    """How several processes (torchrun -m everlong ...) share a model: each has all of it and a part of every batch
    (ddp), or each keeps a part of it as well (fsdp: FSDP2, for models that are too large for one device)."""
    gradient_accumulation: int = 1
    """Parts in which a process reads its rows of a step, one after the other: less memory, the same step."""
    mixed_precision: bool = False
    """Compute in bfloat16, for a float32 model: on a CPU the products with weights, elsewhere activations as well
    (autocast). Weights, optimizer, states and loss stay float32."""
    activation_checkpointing: bool = False
    """Keep only what goes in and out of each block, and compute the inside again in the backward pass: far less memory,
    a third more time. States are those of the first computation."""
    compile: bool = False
    """Compile each block with torch.compile; the first step takes long."""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """Where a loss, gradient or state is not finite: stop (exit code 3), or skip the step, leaving the weights, the
    optimizer and what rows start from as they were; but a row whose carried state is at fault starts from zero.
    Skipped steps and such rows are counted and shown; after 5 skipped steps in a row the run stops all the same."""
    checkpoint_every: int = 25
    """Steps between the checkpoints that a resume goes on from; at Ctrl-C and at the end there is always one."""
    trackers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Show the metrics there, too; they write into the run folder, W&B offline (pip install everlong[trackers])."""

    def __post_init__(self) -> None:
        for name in ("gradient_accumulation", "checkpoint_every"):
            _require(name, getattr(self, name), getattr(self, name) >= 1, "it must be at least 1")


CHANGEABLE = tuple(field.name for field in fields(EngineConfig) if field.name != "mixed_precision")
"""What may change at a resume: the same is trained, to rounding in float32."""
MOST_SKIPPED_IN_A_ROW = 5
"""Skipped steps after which a run stops: every step reads other rows, so it is not the data."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(EngineConfig):
    """The paper's recipe (arXiv 2507.02782): AdamW, cosine with a floor, linear warm-up."""

    steps: int = 100
    """Optimizer steps."""
    batch_size: int = 32
    """Rows of training context a step, over all processes."""
    learning_rate: float = 3e-4
    """Peak learning rate; for post-training one tenth of pre-training's."""
    learning_rate_floor: float = 1e-5
    """Where the cosine ends."""
    warm_up: float = 0.1
    """Share of the steps over which the learning rate climbs to its peak."""
    weight_decay: float = 0.1
    """Decoupled weight decay; none on A_log, D, dt_bias, norms and biases."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's averages."""
    clip: float = 1.0
    """Gradients are scaled down to this norm."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("steps", "batch_size"):
            _require(name, getattr(self, name), getattr(self, name) >= 1, "it must be at least 1")
        for name in ("learning_rate", "clip"):
            _require(name, getattr(self, name), getattr(self, name) > 0, "it must be above 0")
        floor_fits = 0 <= self.learning_rate_floor <= self.learning_rate
        allowed = f"it must lie between 0 and learning_rate, {self.learning_rate}"
        _require("learning_rate_floor", self.learning_rate_floor, floor_fits, allowed)
        _require("warm_up", self.warm_up, 0 <= self.warm_up <= 1, "it must lie between 0 and 1")
        _require("weight_decay", self.weight_decay, self.weight_decay >= 0, "it must be at least 0")
        _require("betas", self.betas, all(0 <= beta < 1 for beta in self.betas), "each must be at least 0 and below 1")


def _require(name: str, value: object, fits: bool, allowed: str) -> None:
    if not fits:
        raise EverlongError(f"{name} is {value}; {allowed}")
