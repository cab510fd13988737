"""The proof of a conversion: what was written, opened again, is the model that went in."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from everlong.checkpoints._checkpoint import Checkpoint, first_line
from everlong.checkpoints._weights import read_weights
from everlong.checkpoints._writing import small_files
from everlong.checkpoints.formats import FORMATS, is_writable
from everlong.diagnostics.contract import random_tokens, relative
from everlong.errors import EverlongError
from everlong.loading import open_model
from everlong.records.doctor import Check

ROWS, LENGTH = 2, 65
LIBRARY_BOUND = 1e-5
"""Of logits between two implementations in float32, over the largest logit."""


def prove(original: Checkpoint, written: Path, *, target_format: str, seed: int, library: bool) -> Iterator[Check]:
    """All checks, one after the other; after the first that fails the rest may have no meaning.

    Args:
        original: what was opened and written.
        written: the folder.
        target_format: what it was written as.
        seed: of the random tokens.
        library: whether transformers is asked, where the format is its.
    """
    model = original.model
    try:
        again = open_model(written, backend=model.backend, device=model.device, dtype=model.dtype)
    except EverlongError as error:
        yield Check(name="opens again", ok=False, words=str(error))
        return
    yield Check(name="opens again", ok=again.format == target_format, words=f"as {again.format}")
    yield _settings(original, again)
    yield _dtypes(original, again)
    yield _tensors(original, again)
    yield _way_back(original, again)
    yield _logits(original, again, seed)
    if library and target_format == "transformers" and find_spec("transformers"):
        yield _library(written, seed)


def _settings(original: Checkpoint, again: Checkpoint) -> Check:
    """Context, tokenizer and the files beside; which fields of the configuration the format has no place for."""
    before, after = ((c.context, c.tokenizer, _beside(c)) for c in (original, again))
    lost = [
        *([f"training context {before[0]} is now {after[0]}"] if before[0] != after[0] else []),
        *([f"tokenizer {before[1]} is now {after[1]}"] if before[1] != after[1] else []),
        *(f"{name} is missing" for name in sorted(before[2] - after[2])),
    ]
    words = [f"training context {before[0] or 'not known'}", f"tokenizer {before[1] or 'not named'}"]
    words += [f"with {', '.join(sorted(before[2]))}"] if before[2] else []
    changed = [
        f"{field.name} {getattr(original.model.config, field.name)} is {getattr(again.model.config, field.name)}"
        for field in fields(original.model.config)
        if getattr(original.model.config, field.name) != getattr(again.model.config, field.name)
    ]
    words += [f"in this format {', '.join(changed)}"] if changed else []
    return Check(name="settings and files", ok=not lost, words="; ".join(lost or words))


def _beside(checkpoint: Checkpoint) -> set[str]:
    folder = checkpoint.own_folder
    return {file.name for file in small_files(folder)} if folder else set()


def _dtypes(original: Checkpoint, again: Checkpoint) -> Check:
    written = str(original.model.dtype).removeprefix("torch.")
    held, holds = (", ".join(f"{d} x {n}" for d, n in c.stored_dtypes.items()) for c in (original, again))
    return Check(name="dtype", ok=set(again.stored_dtypes) == {written}, words=f"{held} in IN; {holds} in OUT")


def _tensors(original: Checkpoint, again: Checkpoint) -> Check:
    """Ours before and after; and OUT's file against what the model that was read from it would be written as."""
    wanted = original.model.state_dict()
    differs = difference(again.model.state_dict(), wanted)
    words = f"all {sum(p.numel() for p in original.model.parameters()):,} parameters equal to the bit"
    pair = _file_and_model(again, again)
    if pair is not None:
        stored, written = pair
        differs = differs or difference(written, stored, tied=_tied(again))
        words = f"{len(stored)} in the file, one for one; {words}"
    return Check(name="tensors of OUT", ok=differs is None, words=differs or words)


def _way_back(original: Checkpoint, again: Checkpoint) -> Check:
    """What OUT would be written as in IN's format, against IN's file."""
    name, pair = "tensors on the way back to IN", _file_and_model(original, again)
    if pair is None:
        return Check(name=name, ok=True, words=f"not compared: there is no way back to the {original.format} format")
    stored, written = pair
    dtype = original.model.dtype
    cast = sum(tensor.dtype != dtype for tensor in stored.values())
    differs = difference(written, {key: tensor.to(dtype) for key, tensor in stored.items()}, tied=_tied(again))
    words = f"{len(stored)} in the file, equal to the bit" + (f" ({cast} of them as {dtype})" if cast else "")
    return Check(name=name, ok=differs is None, words=differs or words.replace("torch.", ""))


def _file_and_model(file: Checkpoint, model: Checkpoint) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]] | None:
    """The tensors that a checkpoint's file holds, and a model's in the names and layouts of that format.

    None where the format is read only, or its files hold something else than such tensors.
    """
    outward = getattr(FORMATS[file.format](), "tensors", None)
    if file.weights is None or outward is None or not is_writable(file.format):
        return None
    return read_weights(file.weights.parent, file.weights).tensors, outward(model.model)


@torch.no_grad()
def _logits(original: Checkpoint, again: Checkpoint, seed: int) -> Check:
    tokens = random_tokens(original.model, seed=seed, rows=ROWS, length=LENGTH)
    wanted, found = original.model(tokens), again.model(tokens)
    if found.logits.shape != wanted.logits.shape or found.state.spec != wanted.state.spec:
        return Check(name="logits and state", ok=False, words="of other shapes")
    pairs = zip((found.logits, *found.state.leaves), (wanted.logits, *wanted.state.leaves), strict=True)
    value = max(float(torch.nan_to_num((a - b).abs().double(), nan=torch.inf).max()) for a, b in pairs)
    words = f"largest difference over {ROWS} rows of {LENGTH} random tokens"
    return Check(name="logits and state", ok=value == 0, words=words, value=value, bound=0.0)


@torch.no_grad()
def _library(written: Path, seed: int) -> Check:
    """The same folder opened by transformers, both in float32 on the CPU."""
    import transformers

    name = "logits by transformers"
    ours = open_model(written).model
    tokens = random_tokens(ours, seed=seed, rows=ROWS, length=LENGTH)
    try:
        with _quiet():
            theirs = transformers.AutoModelForCausalLM.from_pretrained(
                str(written), dtype=torch.float32, trust_remote_code=False, local_files_only=True
            )
            logits = theirs.eval()(tokens).logits
    except Exception as error:  # a library with errors of its own: whatever it says is the finding
        return Check(name=name, ok=False, words=f"it cannot read OUT: {first_line(error)}")
    value = float(relative(logits, ours(tokens).logits).max())
    words = f"transformers {transformers.__version__}, both in float32; over the largest logit"
    return Check(name=name, ok=value <= LIBRARY_BOUND, words=words, value=value, bound=LIBRARY_BOUND)


@contextmanager
def _quiet() -> Iterator[None]:
    """The library without its bars, and without its advice to install kernels."""
    from transformers.utils import logging

    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def difference(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], *, tied: Tensor | None = None) -> str | None:
    """The first thing in which two sets of named tensors differ, in words; None: they are the same to the bit.

    Args:
        found: one.
        wanted: the other.
        tied: a tensor that either may also store under a second name.
    """
    for what, names, tensors in (
        ("is missing", sorted(set(wanted) - set(found)), wanted),
        ("is one too many", sorted(set(found) - set(wanted)), found),
    ):
        for name in names:
            if tied is None or not _same_bits(tensors[name], tied):
                return f"{name} {what}"
    for name in sorted(set(found) & set(wanted)):
        a, b = found[name], wanted[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{name} is {list(a.shape)} {a.dtype}, not {list(b.shape)} {b.dtype}".replace("torch.", "")
        if not _same_bits(a, b):
            gap = (a.cpu().double() - b.cpu().double()).abs()
            return f"{name} differs in {int((gap > 0).sum()):,} of {gap.numel():,} numbers, by {float(gap.max()):.2g}"
    return None


def _same_bits(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    first, second = (t.detach().cpu().contiguous().view(-1).view(torch.uint8) for t in (a, b))
    return torch.equal(first, second)


def _tied(checkpoint: Checkpoint) -> Tensor | None:
    model = checkpoint.model
    return model.backbone.embedding.weight if model.config.tie_embeddings else None
