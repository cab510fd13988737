"""Hugging Face's hub, which its libraries ask again and again, for most of a minute, where there is no network."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

PATIENCE = 5.0  # seconds


@cache
def is_reachable() -> bool:
    """Whether the hub answers, with whatever status; asked once a process, and not at all with HF_HUB_OFFLINE set."""
    from huggingface_hub import constants, get_session

    if constants.is_offline_mode():
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # the network, a proxy and certificates have errors of their own
        return False
    return True


@contextmanager
def asked_once() -> Iterator[None]:
    """Within it, where the hub cannot be reached, the libraries take at once what their caches hold.

    Raises:
        ConnectionError: they hold nothing of what is wanted.
    """
    if is_reachable():
        yield
        return
    from huggingface_hub import constants

    # read from the environment when the libraries are imported, and looked up here at every request
    settings: list[Any] = [constants, *([sys.modules["datasets.config"]] if "datasets.config" in sys.modules else [])]
    before = [each.HF_HUB_OFFLINE for each in settings]
    try:
        for each in settings:
            each.HF_HUB_OFFLINE = True
        yield
    except Exception:  # each library says it in other words, and some advise to set variables
        raise ConnectionError("the hub cannot be reached, and its cache here does not hold it") from None
    finally:
        for each, value in zip(settings, before, strict=True):
            each.HF_HUB_OFFLINE = value
