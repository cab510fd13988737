"""What a run rests on beside its settings: the model and the texts, which a resume has to find as they were."""

import hashlib
import json
from collections.abc import Mapping

import torch

from everlong.data.corpus import Corpus
from everlong.errors import EverlongError
from everlong.models.language_model import LanguageModel
from everlong.runs import Run, write_json

INPUTS = "inputs.json"  # in the run folder; a run from before there was one gets it at its next resume
DIGITS = 16  # of a digest: more than chance needs, and few enough to be read
TRAINING_TEXT, HELD_OUT_TEXT, START_MODEL = "training_text", "held_out_text", "start_model"


def text_digest(corpus: Corpus) -> str:
    """What tells the tokens of a text from others, in hex."""
    return corpus.identity[:DIGITS]


def model_digest(model: LanguageModel) -> str:
    """The beginning of the SHA-256 of names, shapes, dtypes and values of a model's tensors, in hex."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {list(tensor.shape)} {tensor.dtype} ".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:DIGITS]


def check_inputs(run: Run, found: Mapping[str, str | None]) -> None:
    """Notes down what a run rests on, and refuses a resume that finds something else than was noted down.

    Args:
        run: the run folder.
        found: name -> digest, now; None: there is none. Names that are new are added.

    Raises:
        EverlongError: the first that differs.
    """
    run.crew.on_main(lambda: _check(run, found))


def _check(run: Run, found: Mapping[str, str | None]) -> None:
    path = run.path / INPUTS
    try:
        noted = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise EverlongError(f"{path} cannot be read ({error}): remove it, and it is made anew") from error
    for name, digest in found.items():
        if noted.get(name, digest) != digest:
            raise EverlongError(
                f"the {name.replace('_', ' ')} has changed since {run.path} was begun (SHA-256 {noted[name]}, now "
                f"{digest}): put it back as it was, or start a new run"
            )
    if noted != {**noted, **found}:
        write_json(path, {**noted, **found})
