"""`everlong doctor`: what a model is, where each number was read, and whether it keeps the contract on this machine."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from inspect import getmembers
from pathlib import Path

import torch

from everlong.checkpoints._checkpoint import Checkpoint
from everlong.checkpoints._provenance import context_source, origins, tokenizer_source
from everlong.data.tokenizers import Tokenizer, load_tokenizer
from everlong.diagnostics.contract import CHECKS, LENGTH, ROWS, check_contract, recurrences
from everlong.errors import EverlongError
from everlong.models.language_model import LanguageModel
from everlong.ops.backends import why_not
from everlong.progress import Progress
from everlong.records.doctor import Backend, Check, Doctor, Fact, StateLeaf
from everlong.runs import Run
from everlong.workflows._start import refusable
from everlong.workflows._subject import check_context, open_checkpoint
from everlong.workflows.config import DoctorConfig


def doctor(config: DoctorConfig, progress: Progress | None = None) -> Doctor:
    """Examines a model; see ``DoctorConfig``. The record is saved where --output asks for it."""
    progress = progress or Progress()
    check_context(config.context)
    if config.output is None:
        return _examine(config, progress)
    if Path(config.output).exists():
        raise EverlongError(f"--output {config.output} exists; nothing is written over: choose another folder")
    with Run.create(config.output, "doctor", asdict(config)) as run, refusable(run):
        record = _examine(config, progress)
        run.save("doctor", record)
        return record


def _examine(config: DoctorConfig, progress: Progress) -> Doctor:
    started = time.monotonic()
    checkpoint = open_checkpoint(config.model, config.machine)
    model = checkpoint.model
    tokenizer, missing = _tokenizer(checkpoint)
    return Doctor(
        model=checkpoint.name,
        format=checkpoint.format,
        architecture=model.config.architecture,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        context=config.context if config.context is not None else checkpoint.context,
        facts=tuple(_facts(checkpoint, config.context, tokenizer, missing)),
        backends=tuple(_backends(model)),
        state=tuple(_state(model)),
        checks=tuple(_checks(model, tokenizer, seed=config.machine.seed, progress=progress)),
        rows=ROWS,
        length=LENGTH,
        seed=config.machine.seed,
        backend=model.backend_in_use(),
        device=str(model.device),
        dtype=str(model.dtype).removeprefix("torch."),
        seconds=time.monotonic() - started,
    )


def _facts(checkpoint: Checkpoint, context: int | None, tokenizer: Tokenizer | None, missing: str) -> Iterator[Fact]:
    config, weights = checkpoint.model.config, checkpoint.weights
    dtypes = ", ".join(f"{dtype} x {count}" for dtype, count in checkpoint.stored_dtypes.items())
    yield Fact(name="dtype in the file", value=dtypes or "not known", source=weights.name if weights else "")
    dtype = str(checkpoint.model.dtype).removeprefix("torch.")
    yield Fact(name="dtype in memory", value=dtype, source="--dtype; float32 unless another is asked for")
    for origin in origins(checkpoint):
        if origin.field == "tie_embeddings":
            yield Fact(name="head", value="tied" if origin.value else "untied", source=origin.source)
        elif type(origin.value) is int:
            yield Fact(name=origin.field, value=f"{origin.value:,}", source=origin.source)
    for name, _ in getmembers(type(config), lambda member: isinstance(member, property)):
        if type(value := getattr(config, name)) is int:
            yield Fact(name=name, value=f"{value:,}", source="follows from the others")
    if context is not None:
        yield Fact(name="training context", value=f"{context:,}", source="--context")
    elif source := context_source(checkpoint):
        yield Fact(name="training context", value=f"{checkpoint.context:,}", source=source)
    else:
        yield Fact(name="training context", value="not known", source="diagnose and repair need --context N")
    if tokenizer is not None:
        where = tokenizer_source(checkpoint, tokenizer.name)
        yield Fact(name="tokenizer", value=f"{tokenizer.name}, {tokenizer.vocab_size:,} ids", source=where)
    else:
        yield Fact(name="tokenizer", value="not known", source=missing)


def _tokenizer(checkpoint: Checkpoint) -> tuple[Tokenizer | None, str]:
    """The model's own tokenizer, or why there is none, with the flag that gives one."""
    try:
        return load_tokenizer(None, model_folder=checkpoint.folder, configured=checkpoint.tokenizer), ""
    except EverlongError as error:
        return None, str(error)


def _backends(model: LanguageModel) -> Iterator[Backend]:
    """The backends of the ops that the model's mixers call."""
    wide = torch.promote_types(model.dtype, torch.float32)
    chosen = model.backend_in_use()
    for name in sorted({name for recurrence in recurrences(model) for name in recurrence.op}):
        why = "the fastest that serves here" if model.backend == "auto" else "asked for by --backend"
        yield Backend(
            name=name,
            reason=why_not(name, model.device, wide),
            chosen=name == chosen,
            why=why if name == chosen else "",
        )


def _state(model: LanguageModel) -> Iterator[StateLeaf]:
    """The leaves, those that layers have alike once."""
    spec = model.state_spec
    alike: dict[tuple, list] = {}
    for leaf in spec.leaves:
        alike.setdefault((leaf.name, leaf.role, leaf.shape, leaf.dtype), []).append(leaf)
    for (name, role, shape, dtype), leaves in alike.items():
        yield StateLeaf(
            name=name,
            role=role,
            shape=shape,
            dtype=str(dtype).removeprefix("torch."),
            layers=len(leaves),
            bytes=len(leaves) * torch.Size(shape).numel() * dtype.itemsize,
        )


def _checks(model: LanguageModel, tokenizer: Tokenizer | None, *, seed: int, progress: Progress) -> Iterator[Check]:
    if tokenizer is not None:
        yield Check(
            name="vocabulary holds the tokenizer's ids",
            ok=tokenizer.vocab_size <= model.config.vocab_size,
            words=f"{tokenizer.vocab_size:,} ids, the model knows {model.config.vocab_size:,}",
        )
    with progress.task("checking", total=CHECKS) as task:
        for check in check_contract(model, seed=seed):
            task.advance(1)
            yield check
