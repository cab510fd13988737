"""`everlong train`: a model from scratch, from a typed configuration."""

from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import torch

from everlong.data.orders import DATA_ORDERS
from everlong.data.tokenizers import load_tokenizer
from everlong.diagnostics.config import DiagnosisConfig
from everlong.errors import EverlongError
from everlong.interventions.methods import create as create_intervention
from everlong.loading import parse_dtype, save
from everlong.models.architectures import ARCHITECTURES
from everlong.progress import Progress
from everlong.records import Training
from everlong.runs import Run
from everlong.training.checkpoint import discard
from everlong.training.loop import train as run_loop
from everlong.workflows._start import page_of, start_run
from everlong.workflows._subject import best_device, open_text
from everlong.workflows.config import TrainConfig

NAME = "scratch"


def train(config: TrainConfig, progress: Progress | None = None) -> tuple[Training, Path]:
    """Trains a model from scratch; see ``TrainConfig``.

    Returns:
        The record, and the page of the report; the model lies in models/scratch beside it.
    """
    progress = progress or Progress()
    with start_run("train", config) as (run, config):
        record = run.phase(f"training-{NAME}", lambda: _work(run, config, progress), everyone=True)
        run.crew.on_main(lambda: discard(run.path, NAME))
        return record, page_of(run)


def _work(run: Run, config: TrainConfig, progress: Progress) -> Training:
    runtime, settings = config.runtime, config.training
    tokenizer = load_tokenizer(config.data.tokenizer)
    if tokenizer.vocab_size > config.model.vocab_size:
        raise EverlongError(
            f"tokenizer {tokenizer.name} has {tokenizer.vocab_size} ids, --vocab-size is {config.model.vocab_size}: "
            f"give --vocab-size {tokenizer.vocab_size}"
        )
    held_out = DiagnosisConfig()  # what a diagnosis would hold out of the same text is not trained on
    text = run.crew.together(
        lambda: open_text(
            config.data,
            tokenizer,
            trains=True,
            length=held_out.max_length,
            documents=held_out.documents,
            seed=runtime.seed,
            progress=progress,
        )
    )
    order = DATA_ORDERS[config.data_order]
    source = order(text.train, length=config.context, batch_size=settings.batch_size, seed=runtime.seed)
    torch.manual_seed(runtime.seed)
    model = ARCHITECTURES[config.model.architecture](config.model, backend=runtime.backend)
    model = model.to(device=best_device(runtime.device), dtype=parse_dtype(runtime.dtype))
    record = run_loop(
        model,
        source,
        create_intervention("zero", seed=runtime.seed),
        settings,
        run=run,
        phase=NAME,
        progress=progress,
        label="training from scratch",
    )
    folder = run.path / "models" / NAME

    def write() -> None:
        rmtree(folder, ignore_errors=True)  # a model without a record: the run was killed between the two
        save(model, folder, context=config.context, tokenizer=tokenizer.name)

    run.crew.on_main(write)
    return replace(record, model_folder=str(folder.relative_to(run.path)))
