"""`everlong evaluate`: a model on tasks over a grid of lengths, one run folder, one record a task."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from everlong.checkpoints._checkpoint import Checkpoint
from everlong.data.tokenizers import Tokenizer, load_tokenizer
from everlong.errors import EverlongError
from everlong.progress import Progress
from everlong.progress import Task as Bar
from everlong.records.tasks import TaskCell, TaskEvaluation
from everlong.runs import Run
from everlong.tasks._cache import default_folder, example_set
from everlong.tasks._task import Parameters, Task
from everlong.tasks.config import parse_length
from everlong.tasks.evaluate import evaluate as score
from everlong.tasks.registry import TASKS
from everlong.workflows._start import page_of, start_run
from everlong.workflows._subject import check_context, open_checkpoint
from everlong.workflows.config import EvaluateConfig


def evaluate(config: EvaluateConfig, progress: Progress | None = None) -> tuple[dict[str, TaskEvaluation], Path]:
    """Evaluates a model; see ``EvaluateConfig``. A cell that is done is not done again on --resume.

    Returns:
        The record of each task, and the page of the report.
    """
    progress = progress or Progress()
    with start_run("evaluate", config, progress.say) as (run, config):
        check_context(config.context)
        checkpoint = open_checkpoint(config.model, config.runtime)
        tokenizer = load_tokenizer(config.tokenizer, model_folder=checkpoint.folder, configured=checkpoint.tokenizer)
        if tokenizer.vocab_size > checkpoint.model.config.vocab_size:
            raise EverlongError(
                f"tokenizer {tokenizer.name} has {tokenizer.vocab_size} ids, the model knows "
                f"{checkpoint.model.config.vocab_size}: give the tokenizer that it was trained with, --tokenizer"
            )
        tasks = {name: TASKS[name](getattr(config.tasks, name), tokenizer) for name in dict.fromkeys(config.task)}
        lengths = [parse_length(length) for length in config.lengths]
        grids = {name: _once(task, task.cells(lengths), progress) for name, task in tasks.items()}
        for name, task in tasks.items():  # what does not fit is refused before any work
            for cell in grids[name]:
                task.example(cell, seed=config.runtime.seed, index=config.examples - 1)
        records = {}
        total = sum(
            config.examples * task.tokens(cell["length"]) for name, task in tasks.items() for cell in grids[name]
        )
        with progress.task("evaluating", total=total) as bar:
            for name, task in tasks.items():
                cells = tuple(_cell(run, config, checkpoint, task, cell, bar) for cell in grids[name])
                records[name] = run.phase(
                    f"evaluation-{name}",
                    lambda task=task, cells=cells: _record(config, checkpoint, tokenizer, task, cells),
                )
        return records, page_of(run)


def _once(task: Task, cells: Sequence[dict[str, Any]], progress: Progress) -> list[dict[str, Any]]:
    """Each cell once: 1k and 1024 are one length. Counted twice, one cell would look like two that agree."""
    distinct = {repr(sorted(cell.items())): cell for cell in cells}
    if again := len(cells) - len(distinct):
        progress.say(f"{task.name}: {again} of {len(cells)} cells are given again (1k is 1024) and count once.")
    return list(distinct.values())


def _cell(
    run: Run, config: EvaluateConfig, checkpoint: Checkpoint, task: Task, parameters: Parameters, bar: Bar
) -> TaskCell:
    name = "-".join([f"cell-{task.name}", *(f"{key}={value}" for key, value in parameters.items())])
    done = 0

    def advance(tokens: int) -> None:
        nonlocal done
        done += tokens
        bar.advance(tokens, note=f"{task.name} {', '.join(f'{key} {value}' for key, value in parameters.items())}")

    def work() -> TaskCell:
        folder = Path(config.cache).expanduser() if config.cache else default_folder()
        examples = example_set(task, parameters, seed=config.runtime.seed, count=config.examples, folder=folder)
        return score(checkpoint.model, task, parameters, examples, confidence=config.confidence, advance=advance)

    record = run.phase(name, work)
    bar.advance(config.examples * task.tokens(parameters["length"]) - done)
    return record


def _record(
    config: EvaluateConfig, checkpoint: Checkpoint, tokenizer: Tokenizer, task: Task, cells: tuple[TaskCell, ...]
) -> TaskEvaluation:
    model = checkpoint.model
    return TaskEvaluation(
        task=task.name,
        measures=task.measures,
        length_is=task.length_is,
        settings=asdict(task.config),
        model=checkpoint.name,
        architecture=model.config.architecture,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        context=config.context if config.context is not None else checkpoint.context,
        tokenizer=tokenizer.name,
        cells=cells,
        confidence=config.confidence,
        seed=config.runtime.seed,
        backend=model.backend_in_use(),
        device=str(model.device),
        dtype=str(model.dtype).removeprefix("torch."),
        seconds=sum(cell.seconds for cell in cells),
    )
