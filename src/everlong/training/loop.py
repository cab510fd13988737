"""The one training loop: pre-training, post-training and fine-tuning differ in configuration only.

    batch -> initial state -> model -> loss -> backward -> intervention.observe(final state) -> clip, step -> metrics

A run is a function of its settings: nothing here draws from a global generator, and 10 steps equal 5, a kill, and 5
more, in weights, carried states and losses, to the bit. Of N processes the one of rank r reads rows r * B / N to
(r + 1) * B / N - 1 of every batch and no others, in parts if it is told to; their carried states stay with it.
Where an intervention has n steps read before the first, step s is the data's and the draws' step n + s.
"""

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from everlong import launch
from everlong.data.batch import Source
from everlong.errors import EverlongError, RunInterrupted, RunStopped
from everlong.interventions._protocol import Intervention
from everlong.models.language_model import LanguageModel
from everlong.ops.allocator import keep_freed_memory
from everlong.progress import Progress
from everlong.records.training import Training
from everlong.runs import Run
from everlong.training._nonfinite import NonFinite
from everlong.training._rows import Rows, StepRead
from everlong.training._trackers import Trackers
from everlong.training._weights import load_model, load_optimizer, model_values, optimizer_values
from everlong.training.checkpoint import Checkpoint, Checkpoints, check_settings
from everlong.training.config import TrainingConfig
from everlong.training.history import History
from everlong.training.interrupts import Interrupts
from everlong.training.optimizer import adamw
from everlong.training.parallel import TrainedModel, make_accelerator, whole
from everlong.training.processes import Processes
from everlong.training.refusals import check_engine
from everlong.training.schedule import learning_rate


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
    inputs: Mapping[str, str | None] | None = None,
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
        inputs: name -> digest of what the training rests on beside its settings, which a resume has to find unchanged.

    Returns:
        The record; its model_folder is empty, for the caller to fill.

    Raises:
        EverlongError: the intervention needs another data order, the rows cannot be shared evenly, a tracker is not
            installed, or the checkpoint was made with other settings.
        RunStopped: a loss, gradient or state that is not finite (the weights are those before the step), a full disk,
            or another process that has gone.
        RunInterrupted: Ctrl-C or SIGTERM; the step was finished and saved.
    """
    if intervention.data_order not in ("any", source.data_order):
        raise EverlongError(
            f"the method {intervention.name} needs the data order {intervention.data_order!r}, the data come in "
            f"{source.data_order!r} order: choose another method, or another order"
        )
    check_engine(config, rows=source.batch_size, dtype=model.dtype)
    loop = _Loop(model, source, intervention, config, run, phase, progress, inputs or {})
    with loop.processes.expecting_each_other(loop.checkpoints.last_good):
        return loop.work(label)


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
        inputs: Mapping[str, str | None],
    ):
        self.model, self.source, self.intervention, self.config = model, source, intervention, config
        self.run, self.phase, self.progress = run, phase, progress
        self.device = model.device
        self.processes = Processes()
        self.context = source.length - intervention.unscored_prefix
        parts = self.processes.parts_of(source.batch_size, config.gradient_accumulation)
        folder = run.path / "trackers"
        accelerator = make_accelerator(self.device, log_with=list(config.trackers) or None, project_dir=folder)
        assert accelerator.num_processes == self.processes.count, "Accelerate sees another number of processes"
        intervention.sum_over_processes = self.processes.sum
        self.history = History(context=self.context, steps=config.steps, prefill_steps=intervention.prefill_steps)
        self.checkpoints = Checkpoints(run.path, phase, progress.say, self.processes)
        settings = {**asdict(config), "phase": phase, "context": self.context, "intervention": intervention.settings()}
        settings |= {"inputs": dict(inputs)} if inputs else {}
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))  # as they are read back
        self.trackers = Trackers(accelerator, config.trackers, phase, folder, self.settings)
        self.trained = TrainedModel(model, config, self.processes, accelerator)
        self.rows = Rows(
            self.trained, source, intervention, self.processes, parts=parts, exposure=self.history.exposure
        )
        self.nonfinite = NonFinite(
            config.on_nonfinite,
            self.rows,
            self.history,
            phase=phase,
            command=self.command,
            last_good=self.checkpoints.last_good,
            say=progress.say,
        )
        self.optimizer = adamw(self.trained.module, config)
        self.interrupts = Interrupts(alone=self.processes.count == 1)
        self.any_asked = False
        self.step_ended = time.monotonic()

    def work(self, label: str) -> Training:
        """All steps that are left to do."""
        ended = False
        try:
            with self.interrupts:
                self.steps(label)
            ended = True
        finally:
            self.optimizer.zero_grad(set_to_none=True)
            self.trained.release(trained=ended)
            self.trackers.close()
        return self.record()

    def steps(self, label: str) -> None:
        """From the newest checkpoint to the last step, or to an interruption."""
        start = done = self.resume()
        steps, every = self.config.steps, self.config.checkpoint_every
        keep_freed_memory()
        self.model.train()
        self.trained.module.train()
        self.trained.warm_up(self.source.batch(0, self.rows.parts[0]).tokens)
        if self.checkpoints.last is None:
            self.prefill()
        self.step_ended = time.monotonic()
        with self.progress.task(label, total=steps, done=start) as task:
            for step in range(start, steps):
                line = self.step(step)
                self.log(line)
                task.advance(1, note=_note(line))
                stop = self.must_stop
                if stop or (step + 1) % every == 0 or step + 1 == steps:
                    self.save(step + 1)
                    done = step + 1
                if stop:
                    break
        if self.anyone_asked():  # since the last step was measured, too
            raise RunInterrupted(
                f"{self.phase} was interrupted and saved after {done} of {steps} steps; go on with `{self.command}`"
            )

    def prefill(self) -> None:
        """Reads the rows of the steps before the first, so that it starts from their final states; saves these."""
        steps = self.intervention.prefill_steps
        if not steps:
            return
        with self.progress.task(f"reading ahead of {self.phase}", total=steps) as task:
            for drawn in range(steps):
                before = self.intervention.state_dict()
                tokens, squares = self.rows.prefill(drawn)
                self.history.prefill(tokens)
                if not math.isfinite(sum(squares)):
                    self.nonfinite.ahead(drawn, before, squares)
                task.advance(1)
                if self.anyone_asked():
                    raise RunInterrupted(
                        f"{self.phase} was interrupted while it read ahead, before its first step; go on with "
                        f"`{self.command}`"
                    )
        self.save(0)

    @property
    def command(self) -> str:
        """Goes on with this run."""
        return launch.command(f"{self.run.verb} --resume {self.run.path}")

    @property
    def must_stop(self) -> bool:
        """Whether Ctrl-C or SIGTERM has come: of several processes, to any before the end of this step."""
        return self.interrupts.asked if self.processes.count == 1 else self.any_asked

    def anyone_asked(self) -> bool:
        """Whether Ctrl-C or SIGTERM has come to any process so far; all ask together."""
        return bool(self.processes.sum(torch.tensor(int(self.interrupts.asked))))

    def step(self, step: int) -> dict[str, Any]:
        """One step; returns its line of metrics."""
        config, intervention = self.config, self.intervention
        drawn = intervention.prefill_steps + step
        parts, targets = self.rows.batches(drawn)
        if not targets:
            raise EverlongError(f"no target of the batch at step {drawn} is scored: its loss is undefined")
        rate = learning_rate(step, config)
        for group in self.optimizer.param_groups:
            group["lr"] = rate

        self.optimizer.zero_grad()
        before = intervention.state_dict()
        read = self.rows.read(parts, targets, drawn)
        gradients = [parameter.grad for parameter in self.trained.module.parameters() if parameter.grad is not None]
        norm = whole(torch.nn.utils.get_total_norm(gradients))
        loss, norm_value, squares = self.measure(read, norm)
        tokens, scored_from, zero_starts, *exposed = self.processes.sum(read.counts).tolist()
        stops: RunStopped | None = None
        finite = math.isfinite(loss) and math.isfinite(norm_value) and math.isfinite(sum(squares))
        line: dict[str, Any] = {
            "phase": self.phase,
            "step": step,
            "loss": loss,
            "learning_rate": rate,
            "gradient_norm": norm_value,
            "state_norm": math.sqrt(sum(squares) / self.source.batch_size) if finite else math.nan,
            "state_age_mean": scored_from / self.source.batch_size,
        }
        if finite:
            torch.nn.utils.clip_grads_with_norm_(self.trained.module.parameters(), config.clip, norm)
            self.optimizer.step()
            self.history.add(loss, tokens, zero_starts, exposed, rate / config.learning_rate)
        else:
            self.history.skip(tokens)
            values = f"loss {loss}, gradient norm {norm_value}"
            told, stops = self.nonfinite.in_a_step(step, drawn, before, values, loss, squares)
            line |= told
        line |= self.counts(tokens)
        if stops:
            self.log(line)
            raise stops
        return line

    def measure(self, read: StepRead, norm: Tensor) -> tuple[float, float, list[float]]:
        """Loss, gradient norm and the squares of the state leaves, of all processes; waits for the device once."""
        asked = torch.tensor([self.interrupts.asked], dtype=read.squares.dtype, device=self.device)
        summed = self.processes.sum(torch.cat([read.loss.view(1).to(asked), asked, read.squares]))
        loss, any_asked, *squares, norm_value = torch.cat([summed, norm.detach().to(summed.dtype).view(1)]).tolist()
        self.any_asked = any_asked > 0
        return loss, norm_value, squares

    def counts(self, tokens: int) -> dict[str, Any]:
        """What was counted so far, and how fast."""
        now = time.monotonic()
        speed, self.step_ended = tokens / max(now - self.step_ended, 1e-9), now
        return {
            "scored_tokens": self.history.exposure.scored_tokens,
            "skipped_steps": self.history.skipped_steps,
            "tokens_per_second": round(speed, 1),
            "seconds": round(self.history.seconds, 3),
        }

    def log(self, line: dict[str, Any]) -> None:
        """Writes a line of metrics; JSON has no infinity and no not-a-number, which become null."""
        written = {
            name: None if value != value or value in (math.inf, -math.inf) else value for name, value in line.items()
        }
        with self._writing_metrics():
            self.run.log(written)
        self.trackers.log(written)

    def save(self, step: int) -> None:
        """Writes a checkpoint: all that the steps after ``step`` depend on."""
        with self._writing_metrics():
            self.run.settle()
        module = self.trained.module
        parts = {
            "model": model_values(module),
            "optimizer": optimizer_values(module, self.optimizer),
            "history": self.history.state_dict(),
        }
        self.checkpoints.save(step, parts, self.intervention.state_dict(), self.settings)
        self.step_ended = time.monotonic()

    def resume(self) -> int:
        """Takes up the newest checkpoint; returns the number of steps done."""
        checkpoint = self.checkpoints.newest()
        step = checkpoint.step if checkpoint else 0
        if checkpoint:
            check_settings(checkpoint, self.settings)
            load_model(self.trained.module, checkpoint.parts["model"], checkpoint.path)
            load_optimizer(self.trained.module, self.optimizer, checkpoint.parts["optimizer"])
            self.history.load_state_dict(checkpoint.parts["history"])
            self.take_up(checkpoint)
        with self._writing_metrics():
            self.run.rewind(self.phase, step)
        return step

    def take_up(self, checkpoint: Checkpoint) -> None:
        """Gives the intervention what its rows carried; says what is lost where other processes wrote it."""
        before, now = checkpoint.processes, self.processes.count
        carried = checkpoint.carried[0]
        if before != now:
            rows = torch.arange(self.rows.parts[0].start, self.rows.parts[-1].stop)
            carried = self.intervention.regrouped(checkpoint.carried, rows)
            lost = "each row keeps its state" if carried is not None else f"what {self.intervention.name} kept is lost"
            self.progress.say(
                f"{checkpoint.path} was written by {before} processes, {now} go on: {lost}; weights, optimizer and "
                "data go on where they were; sums are taken in another order, so it is to rounding, not to the bit"
            )
        if carried is not None:
            self.intervention.load_state_dict(carried)

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
        if history.skipped_steps == self.config.steps:
            raise RunStopped(f"{self.phase}: every step was skipped, for none was finite; nothing was trained")
        if history.skipped_steps:
            self.progress.say(
                f"{self.phase}: {history.skipped_steps:,} of {self.config.steps:,} steps were skipped, for they were "
                "not finite"
            )
        return Training(
            method=self.intervention.name,
            context=self.context,
            settings={**self.settings, "data_order": self.source.data_order},
            steps=self.config.steps,
            skipped_steps=history.skipped_steps,
            zeroed_rows=history.zeroed_rows,
            zero_starts=history.zero_starts,
            processes=self.processes.count,
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


def _note(line: dict[str, Any]) -> str:
    """A step in a few words, all of them from its line of metrics."""
    skipped = f"  {line['skipped_steps']} skipped" if line["skipped_steps"] else ""
    return (
        f"loss {line['loss']:.3f}  {line['tokens_per_second']:,.0f} tokens/s  gradient {line['gradient_norm']:.3g}  "
        f"state {line['state_norm']:.3g}{skipped}"
    )
