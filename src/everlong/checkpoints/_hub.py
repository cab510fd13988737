"""Fetching a model's folder from the Hugging Face hub; every failure is one line."""

import re
from pathlib import Path

from everlong.checkpoints._checkpoint import first_line
from everlong.data._hub import asked_once
from everlong.errors import EverlongError

SMALL = ["*.json", "*.txt", "*.model", "*.tiktoken", "LICENSE*", "NOTICE*"]  # configuration and tokenizers
SAFETENSORS = ["model*.safetensors"]
PICKLES = ["pytorch_model*.bin"]


def is_hub_id(request: str) -> bool:
    """Whether a request has the shape ``owner/name``."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", request, re.ASCII) is not None


def fetch(request: str) -> Path:
    """The local folder of a hub model: its small files, and its safetensors, or its .bin where it has none.

    Raises:
        EverlongError: it cannot be had, with the hub's or the network's own reason.
    """
    import huggingface_hub  # takes half a second, and only hub models need it

    try:
        with asked_once():
            folder = huggingface_hub.snapshot_download(request, allow_patterns=[*SMALL, *SAFETENSORS])
            if not any(Path(folder).glob("*.safetensors")):
                folder = huggingface_hub.snapshot_download(request, allow_patterns=[*SMALL, *PICKLES])
    except Exception as error:  # hub, network, cache and disk each raise their own kinds: all are the user's one line
        raise EverlongError(
            f"{request!r} is no folder here, and the hub did not give it: {type(error).__name__}: {first_line(error)}"
        ) from error
    return Path(folder)
