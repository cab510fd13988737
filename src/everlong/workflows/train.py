"""`everlong train`: a model from scratch or on from another, on text or on a task, from a typed configuration."""

from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import torch

from everlong.checkpoints._checkpoint import Checkpoint
from everlong.data.batch import Source, TextSource
from everlong.data.tokenizers import Tokenizer, load_tokenizer
from everlong.diagnostics.config import DiagnosisConfig
from everlong.errors import EverlongError
from everlong.interventions._protocol import Intervention
from everlong.interventions.arms import parse_arm
from everlong.interventions.methods import create as create_intervention
from everlong.loading import best_device, parse_dtype, save
from everlong.models.architectures import ARCHITECTURES
from everlong.models.language_model import LanguageModel
from everlong.progress import Progress
from everlong.records.training import Training
from everlong.runs import Run
from everlong.tasks.registry import TASKS
from everlong.tasks.source import TaskSource
from everlong.training.checkpoint import discard
from everlong.training.loop import train as run_loop
from everlong.training.refusals import check_engine
from everlong.workflows._batches import left_out, left_out_in_words, rows_in_words, text_source
from everlong.workflows._inputs import START_MODEL, TRAINING_TEXT, check_inputs, model_digest, text_digest
from everlong.workflows._start import page_of, start_run
from everlong.workflows._subject import check_context, open_checkpoint, open_text
from everlong.workflows.config import TrainConfig

SCRATCH, FINETUNED = "scratch", "finetuned"
CONTEXT = 64  # of a model from scratch


def train(config: TrainConfig, progress: Progress | None = None) -> tuple[Training, Path]:
    """Trains a model; see ``TrainConfig``.

    Returns:
        The record, and the page of the report; the model lies in models/scratch or models/finetuned beside it.
    """
    progress = progress or Progress()
    with start_run("train", config, progress.say) as (run, config):
        name = SCRATCH if config.start is None else FINETUNED
        record = run.phase(f"training-{name}", lambda: _work(run, name, config, progress), everyone=True)
        run.crew.on_main(lambda: discard(run.path, name))
        return record, page_of(run)


def _work(run: Run, name: str, config: TrainConfig, progress: Progress) -> Training:
    checkpoint = _open(config)
    start = checkpoint.model if isinstance(checkpoint, Checkpoint) else checkpoint
    context = config.context
    if context is None:
        context = CONTEXT if isinstance(checkpoint, LanguageModel) else checkpoint.context
    if context is None:
        raise EverlongError(f"the length that {config.start} was trained at is not known: give --context N, in tokens")
    tokenizer = _tokenizer(config, checkpoint)
    arm = parse_arm(config.method, "--method")
    intervention = create_intervention(arm.method, seed=config.runtime.seed, **arm.settings)
    rows = config.training.batch_size if config.task else intervention.row_count(config.training.batch_size)
    check_engine(config.training, rows=rows, dtype=start.dtype)
    source, text = _source(run, config, tokenizer, intervention, context, start.config.vocab_size, progress)
    inputs = {START_MODEL: model_digest(start) if isinstance(checkpoint, Checkpoint) else None, TRAINING_TEXT: text}
    check_inputs(run, inputs)
    progress.say(rows_in_words(intervention, source, at_most=config.task is not None))
    record = run_loop(
        start,
        source,
        intervention,
        config.training,
        run=run,
        phase=name,
        progress=progress,
        label=f"training {'from scratch' if config.start is None else config.start}",
        inputs=inputs,
    )
    folder = run.path / "models" / name

    def write() -> None:
        rmtree(folder, ignore_errors=True)  # a model without a record: the run was killed between the two
        if isinstance(checkpoint, Checkpoint):
            save(replace(checkpoint, context=context), folder)
        else:
            save(checkpoint, folder, context=context, tokenizer=tokenizer.name)

    run.crew.on_main(write)
    return replace(record, model_folder=str(folder.relative_to(run.path)), **left_out(source))


def _open(config: TrainConfig) -> Checkpoint | LanguageModel:
    """The model that training goes on from, or a fresh one."""
    check_context(config.context)
    runtime = config.runtime
    if config.start is not None:
        if config.model != TrainConfig().model:
            raise EverlongError(f"--start {config.start} has its own architecture: give none beside it")
        return open_checkpoint(config.start, runtime)
    torch.manual_seed(runtime.seed)
    model = ARCHITECTURES[config.model.architecture](config.model, backend=runtime.backend)
    return model.to(device=best_device(runtime.device), dtype=parse_dtype(runtime.dtype))


def _tokenizer(config: TrainConfig, checkpoint: Checkpoint | LanguageModel) -> Tokenizer:
    if isinstance(checkpoint, Checkpoint):
        asked = None if config.data.tokenizer == TrainConfig().data.tokenizer else config.data.tokenizer
        tokenizer = load_tokenizer(asked, model_folder=checkpoint.folder, configured=checkpoint.tokenizer)
        vocab_size, remedy = checkpoint.model.config.vocab_size, "--tokenizer as it was trained with"
    else:
        tokenizer, vocab_size = load_tokenizer(config.data.tokenizer), config.model.vocab_size
        remedy = f"--vocab-size {tokenizer.vocab_size}"
    if tokenizer.vocab_size > vocab_size:
        raise EverlongError(
            f"tokenizer {tokenizer.name} has {tokenizer.vocab_size} ids, the model knows {vocab_size}: give {remedy}"
        )
    return tokenizer


def _source(
    run: Run,
    config: TrainConfig,
    tokenizer: Tokenizer,
    intervention: Intervention,
    context: int,
    vocab_size: int,
    progress: Progress,
) -> tuple[Source, str | None]:
    """Batches of a task's examples, or of text in the order that the method needs, and the digest of the text."""
    seed, batch_size = config.runtime.seed, config.training.batch_size
    if config.task is not None:
        if config.data_order is not None:
            raise EverlongError(f"--data-order {config.data_order} is of text; give none beside --task {config.task}")
        if intervention.data_order not in ("any", TaskSource.data_order):
            raise EverlongError(
                f"--method {config.method} goes on with one text from row to row, and each example of --task "
                f"{config.task} is a text of its own: choose another method, such as state_passing"
            )
        task = TASKS[config.task](getattr(config.tasks, config.task), tokenizer, training=True)
        # a row is an example: as many of them score as many answers, whatever the length of a row
        length, prefix = intervention.row_length(context), intervention.unscored_prefix
        return TaskSource(task, length=length, batch_size=batch_size, seed=seed, prefix=prefix), None
    held_out = DiagnosisConfig()  # what a diagnosis would hold out of the same text is not trained on
    text = run.crew.together(
        lambda: open_text(
            config.data,
            tokenizer,
            trains=True,
            length=held_out.max_length,
            documents=held_out.documents,
            seed=seed,
            progress=progress,
        )
    )
    text.train.check_vocabulary(vocab_size)
    source = text_source(
        text.train, intervention, context=context, batch_size=batch_size, seed=seed, order=config.data_order
    )
    if words := left_out_in_words(source, text.train, _remedy(source, intervention)):
        progress.say(words)
    return source, text_digest(text.train)


def _remedy(source: TextSource, intervention: Intervention) -> str:
    """What reads documents that are too short for their order."""
    if source.data_order == "packed":
        return "they have no second token to predict"
    if intervention.data_order != "any":
        return f"give longer ones ({intervention.name} reads none in packed order)"
    return "--data-order packed reads them"
