"""The one training loop: pre-training, post-training and fine-tuning differ in configuration only.

    batch -> initial state -> model -> loss -> backward, clip, step -> intervention.observe(final state) -> metrics

A run is a function of its settings: nothing here draws from a global generator, and 10 steps equal 5, a kill, and 5
more, in weights, carried states and losses, to the bit.
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from accelerate import Accelerator
from jaxtyping import Bool, Float
from torch import Tensor

from everlong.data.batch import Batch
from everlong.errors import EverlongError, RunInterrupted, RunStopped
from everlong.interventions._protocol import Intervention
from everlong.interventions.exposure import token_ages
from everlong.models.language_model import LanguageModel
from everlong.ops.allocator import keep_freed_memory
from everlong.ops.cross_entropy import token_losses
from everlong.ops.products import products_in
from everlong.progress import Progress
from everlong.records import Training
from everlong.runs import Run
from everlong.training._reading import read, scored_targets, with_resets
from everlong.training._weights import load_model, load_optimizer, model_values, optimizer_values
from everlong.training.checkpoint import Checkpoints, check_settings
from everlong.training.config import TrainingConfig
from everlong.training.history import History
from everlong.training.interrupts import Interrupts
from everlong.training.optimizer import adamw
from everlong.training.schedule import learning_rate


@runtime_checkable
class Source(Protocol):
    """Where batches come from: a pure function of (seed, step)."""

    data_order: str

    def batch(self, step: int) -> Batch:
        """The batch of a step, counted from 0."""
        ...


def train(
    model: LanguageModel,
    source: Source,
    intervention: Intervention,
    config: TrainingConfig,
    *,
    run: Run,
    phase: str,
    progress: Progress,
    label: str,
) -> Training:
    """Trains a model in place, where it is; goes on from the newest checkpoint of the phase, if the run has one.

    Args:
        model: trained on its device and in its dtype; left in training mode.
        source: of the batches.
        intervention: decides what state each row starts from.
        config: the recipe.
        run: the run folder that metrics and checkpoints go to.
        phase: names this training within the run.
        progress: where the bar is shown.
        label: stands beside the bar.

    Returns:
        The record; its model_folder is empty, for the caller to fill.

    Raises:
        EverlongError: the intervention needs another data order, or the checkpoint was made with other settings.
        RunStopped: a loss or gradient that is not finite (the weights are those before the step), or a full disk.
        RunInterrupted: Ctrl-C or SIGTERM; the step was finished and saved.
    """
    if intervention.data_order not in ("any", source.data_order):
        raise EverlongError(
            f"the method {intervention.name} needs the data order {intervention.data_order!r}, the data come in "
            f"{source.data_order!r} order: choose another method, or another order"
        )
    return _Loop(model, source, intervention, config, run, phase, progress).work(label)


class _Loop:
    def __init__(
        self,
        model: LanguageModel,
        source: Source,
        intervention: Intervention,
        config: TrainingConfig,
        run: Run,
        phase: str,
        progress: Progress,
    ):
        self.model, self.source, self.intervention, self.config = model, source, intervention, config
        self.run, self.phase, self.progress = run, phase, progress
        self.spec, self.device = model.state_spec, model.device
        if config.matmul_precision != "float32" and model.dtype != torch.float32:
            raise EverlongError(
                f"matmul_precision is {config.matmul_precision}, which is for float32 models; this one is "
                f"{str(model.dtype).removeprefix('torch.')}: leave it at float32, or give --dtype float32"
            )
        self.optimizer = adamw(model, config)
        # The model stays on the device and in the precision that its owner gave it, whatever the environment says.
        self.accelerator = Accelerator(device_placement=False, mixed_precision="no")
        self.prepared, self.stepper = self.accelerator.prepare(model, self.optimizer)
        self.context = source.batch(0).tokens.shape[1] - intervention.unscored_prefix
        self.history = History(context=self.context, steps=config.steps)
        self.checkpoints = Checkpoints(run.path, phase, progress.say)
        settings = {**asdict(config), "phase": phase, "context": self.context, "intervention": intervention.settings()}
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))  # as they are read back

    def work(self, label: str) -> Training:
        """All steps that are left to do."""
        start = done = self.resume()
        steps, every = self.config.steps, self.config.checkpoint_every
        keep_freed_memory()
        self.model.train()
        with Interrupts() as interrupts, self.progress.task(label, total=steps, done=start) as task:
            for step in range(start, steps):
                line = self.step(step)
                self.log(line)
                task.advance(1, note=f"loss {line['loss']:.3f}")
                stop = interrupts.asked
                if stop or (step + 1) % every == 0 or step + 1 == steps:
                    self.save(step + 1)
                    done = step + 1
                if stop:
                    break
        if interrupts.asked:
            raise RunInterrupted(
                f"{self.phase} was interrupted and saved after {done} of {steps} steps; go on with "
                f"`everlong {self.run.verb} --resume {self.run.path}`"
            )
        self.optimizer.zero_grad(set_to_none=True)
        return self.record()

    def step(self, step: int) -> dict[str, Any]:
        """One step; returns its line of metrics."""
        config, intervention = self.config, self.intervention
        batch = with_resets(self.source.batch(step), intervention, step)
        scored = scored_targets(batch, intervention.unscored_prefix)
        if scored is not None and not scored.any():
            raise EverlongError(f"no target of the batch at step {step} is scored: its loss is undefined")
        rate = learning_rate(step, config)
        for group in self.optimizer.param_groups:
            group["lr"] = rate

        self.stepper.zero_grad()
        here = batch.to(self.device)
        initial = intervention.initial_state(here.starts, self.spec, step, batch.rows)
        ages = intervention.ages(batch.rows)
        with products_in(config.matmul_precision):
            output = read(self.prepared, here, initial, intervention)
        loss = _cross_entropy(output.logits, output.targets, output.scored)
        self.accelerator.backward(loss)
        norm = self.accelerator.clip_grad_norm_(self.model.parameters(), config.clip)
        assert norm is not None  # DeepSpeed's alone is
        loss_value, norm_value = torch.stack([loss.detach(), norm.to(loss.dtype)]).tolist()  # one wait for the device
        if not (math.isfinite(loss_value) and math.isfinite(norm_value)):
            raise RunStopped(
                f"{self.phase} stopped at step {step}: loss {loss_value}, gradient norm {norm_value}; the weights are "
                f"those before the step, and {self.checkpoints.last_good()}; try a lower learning rate"
            )
        self.stepper.step()

        resets = None if batch.resets is None else batch.resets.numpy()
        met = token_ages(ages.numpy(), batch.tokens.shape[1], resets)
        intervention.observe(output.state, torch.from_numpy(met[:, -1] + 1))
        self.history.add(loss_value, met, rate / config.learning_rate, None if scored is None else scored.numpy())
        return {
            "phase": self.phase,
            "step": step,
            "loss": loss_value,
            "learning_rate": rate,
            "gradient_norm": norm_value,
            "state_age_mean": float(np.mean(met[:, intervention.unscored_prefix])),
            "scored_tokens": self.history.exposure.scored_tokens,
            "seconds": round(self.history.seconds, 3),
        }

    def log(self, line: dict[str, Any]) -> None:
        """Writes a line of metrics."""
        with self._writing_metrics():
            self.run.log(line)

    def save(self, step: int) -> None:
        """Writes a checkpoint: all that the steps after ``step`` depend on."""
        parts = {
            "model": model_values(self.model),
            "optimizer": optimizer_values(self.model, self.optimizer),
            "intervention": self.intervention.state_dict(),
            "history": self.history.state_dict(),
        }
        self.checkpoints.save(step, parts, self.settings)

    def resume(self) -> int:
        """Takes up the newest checkpoint; returns the number of steps done."""
        checkpoint = self.checkpoints.newest()
        step = checkpoint.step if checkpoint else 0
        if checkpoint:
            check_settings(checkpoint, self.settings)
            load_model(self.model, checkpoint.parts["model"], checkpoint.path)
            load_optimizer(self.model, self.optimizer, checkpoint.parts["optimizer"])
            self.intervention.load_state_dict(checkpoint.parts["intervention"])
            self.history.load_state_dict(checkpoint.parts["history"])
        with self._writing_metrics():
            self.run.rewind(self.phase, step)
        return step

    @contextmanager
    def _writing_metrics(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunStopped(
                f"the metrics cannot be written to {self.run.path} ({error}); {self.checkpoints.last_good()}"
            ) from error

    def record(self) -> Training:
        """What this arm did."""
        history = self.history
        return Training(
            method=self.intervention.name,
            context=self.context,
            settings=self.settings,
            steps=self.config.steps,
            scored_tokens=history.exposure.scored_tokens,
            read_tokens=history.read_tokens,
            first_loss=history.first_loss,
            final_loss=history.final_loss,
            exposure=history.exposure.record(),
            backend=self.model.backend_in_use(),
            seconds=history.seconds,
            model_folder="",
            intervention=self.intervention.summary(),
        )


def _cross_entropy(
    logits: Float[Tensor, "B T S"], targets: Tensor, scored: Bool[Tensor, "B T"] | None
) -> Float[Tensor, ""]:
    """Mean over the scored targets, in nats, in float32 or wider."""
    losses = token_losses(logits.flatten(0, 1), targets.flatten())
    return losses.mean() if scored is None else losses[scored.flatten().to(losses.device)].mean()
