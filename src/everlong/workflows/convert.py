"""`everlong convert`: a model in another checkpoint format, and the proof that it is the same one."""

import os
import time
from pathlib import Path
from shutil import rmtree

from everlong.checkpoints.formats import check_writable
from everlong.errors import EverlongError
from everlong.loading import STORED, save
from everlong.progress import Progress
from everlong.records.conversion import Conversion
from everlong.records.doctor import Check
from everlong.workflows._proof import LENGTH, ROWS, prove
from everlong.workflows._subject import open_checkpoint
from everlong.workflows.config import ConvertConfig


def convert(config: ConvertConfig, progress: Progress | None = None) -> Conversion:
    """Converts a model; see ``ConvertConfig``.

    Returns:
        The record. Where a check of it failed, nothing is left at the target.

    Raises:
        EverlongError: the target exists, the format is unknown, is read only or cannot hold this model, or the source
            cannot be opened; nothing is left at the target.
    """
    started, progress = time.monotonic(), progress or Progress()
    target, machine = Path(config.target).expanduser(), config.machine
    _refuse_existing(target)
    check_writable(config.to)
    checkpoint = open_checkpoint(config.source, machine, dtype=STORED)
    model = checkpoint.model
    # Written and proven beside the target: what stands there has been proven, whenever the process is ended.
    staged = target.parent / f".{target.name}.unproven-{os.getpid()}"
    checks: list[Check] = []
    try:
        save(checkpoint, staged, format=config.to)
        progress.say(f"Written as {config.to}; proving it.")
        proof = prove(checkpoint, staged, target_format=config.to, seed=machine.seed, library=config.transformers)
        checks.extend(proof)
        if all(check.ok for check in checks):
            _refuse_existing(target)  # it may have come to be meanwhile
            staged.rename(target)
    finally:
        rmtree(staged, ignore_errors=True)
    return Conversion(
        source=checkpoint.name,
        source_format=checkpoint.format,
        target=str(target),
        target_format=config.to,
        architecture=model.config.architecture,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        checks=tuple(checks),
        rows=ROWS,
        length=LENGTH,
        seed=machine.seed,
        backend=model.backend_in_use(),
        device=str(model.device),
        dtype=str(model.dtype).removeprefix("torch."),
        seconds=time.monotonic() - started,
    )


def _refuse_existing(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise EverlongError(f"{target} exists already; nothing is written over, give another folder")
