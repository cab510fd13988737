"""What a verb works on: the model, the length it was trained at, and the text, opened and checked before any work."""

import json
from dataclasses import dataclass

from everlong.checkpoints._bundled import bundled_folder
from everlong.checkpoints._checkpoint import Checkpoint
from everlong.data.config import DataConfig
from everlong.data.corpus import Corpus, Split, split
from everlong.data.inputs import find_inputs
from everlong.data.opening import encode_in_memory, open_corpus
from everlong.data.standard_library import standard_library
from everlong.data.tokenizers import Tokenizer, load_tokenizer
from everlong.diagnostics.config import DiagnosisConfig
from everlong.errors import EverlongError
from everlong.loading import best_device, open_model
from everlong.progress import Progress
from everlong.workflows.config import MachineConfig, RuntimeConfig


@dataclass(frozen=True)
class Subject:
    """A model with its training context, tokenizer and text."""

    checkpoint: Checkpoint
    context: int
    tokenizer: Tokenizer
    text: Split


def open_subject(
    model: str,
    context: int | None,
    data: DataConfig,
    diagnosis: DiagnosisConfig,
    runtime: RuntimeConfig,
    progress: Progress,
    *,
    trains: bool,
) -> Subject:
    """Opens model and text; what is to be trained on is only there where the verb trains.

    Raises:
        EverlongError: anything missing, unreadable or contradictory; the training context or tokenizer is not known.
    """
    checkpoint = open_checkpoint(model, runtime)
    check_context(context)
    length = context if context is not None else checkpoint.context
    if length is None:
        raise EverlongError(
            f"the length that {checkpoint.name} was trained at is not known: give --context N, in tokens"
        )
    tokenizer = load_tokenizer(data.tokenizer, model_folder=checkpoint.folder, configured=checkpoint.tokenizer)
    text = open_text(
        data,
        tokenizer,
        trains=trains,
        length=diagnosis.max_length,
        documents=diagnosis.documents,
        seed=runtime.seed,
        progress=progress,
    )
    for corpus in (text.train, text.held_out):
        corpus.check_vocabulary(checkpoint.model.config.vocab_size)
    return Subject(checkpoint, length, tokenizer, text)


def open_checkpoint(model: str, machine: MachineConfig, *, dtype: str | None = None) -> Checkpoint:
    """Opens a model as the flags say; ``dtype`` stands where no flag does."""
    device = best_device(machine.device)
    return open_model(model, backend=machine.backend, device=device, dtype=machine.dtype or dtype)


def check_context(context: int | None) -> None:
    """Raises where a training context that was asked for can be none."""
    if context is not None and context < 2:
        raise EverlongError(f"--context {context} is too short; a training context has at least 2 tokens")


def open_text(
    data: DataConfig, tokenizer: Tokenizer, *, trains: bool, length: int, documents: int, seed: int, progress: Progress
) -> Split:
    """Reads and tokenizes the text, and parts it into what is trained on and what is held out.

    What --held-out names is taken out of --data. Where nothing is trained, all of --data is there to be measured on.
    """
    if not data.data and not data.held_out:
        names = bundled_held_out()
        corpus = encode_in_memory(standard_library(), tokenizer, progress)
        if not trains:
            return Split(Corpus(()), corpus if names is None else corpus.select(names))
        return split(corpus, length=length, documents=documents, seed=seed, held_out_names=names)
    if trains and not data.data:
        raise EverlongError(f"--held-out {data.held_out[0]} without --data: give what is to be trained on, too")
    aside = find_inputs(data.held_out, stream=data.stream)
    if not trains:
        measured = aside or find_inputs(data.data, stream=data.stream)
        return Split(Corpus(()), open_corpus(measured, tokenizer, data, progress))
    found = find_inputs(data.data, stream=data.stream)
    if not aside:
        corpus = open_corpus(found, tokenizer, data, progress)
        return split(corpus, length=length, documents=documents, seed=seed)
    apart = {each.key for each in aside}
    found = [each for each in found if each.key not in apart]
    if not found:
        raise EverlongError("all of --data is held out and nothing is left to train on: give more --data")
    return Split(*(open_corpus(inputs, tokenizer, data, progress) for inputs in (found, aside)))


def bundled_held_out() -> frozenset[str] | None:
    """The standard library's modules that the bundled model has not seen, as its record names them."""
    record = bundled_folder() / "record.json"
    if not record.is_file():
        return None  # while the recipe that makes the bundled model runs for the first time
    return frozenset(json.loads(record.read_text(encoding="utf-8"))["held_out"])
