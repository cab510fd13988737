"""A name that is no path here and looks like one of the hub, where there is no network: one line, at once."""

from collections.abc import Callable
from functools import cache

import huggingface_hub
import pytest

from everlong.data import _hub
from everlong.data.inputs import read_documents
from everlong.data.tokenizers import load_tokenizer
from everlong.errors import EverlongError
from everlong.loading import open_model

datasets = pytest.importorskip("datasets")

UNREACHABLE = "the hub cannot be reached, and its cache here does not hold it"
OPENED: dict[str, Callable[[], object]] = {
    "dataset": lambda: read_documents(["tets/data"]),
    "stream": lambda: read_documents(["tets/data"], stream=True),
    "model": lambda: open_model("tets/data", backend="chunked"),
    "tokenizer": lambda: load_tokenizer("tets/data"),
}


@pytest.fixture(autouse=True)
def _nothing_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    monkeypatch.setattr(_hub, "is_reachable", cache(_hub.is_reachable.__wrapped__))


@pytest.mark.parametrize("kind", OPENED)
def test_without_a_network_the_hub_is_asked_once(kind, monkeypatch):
    asked = []

    class Session:
        def head(self, url: str, *, timeout: float) -> None:
            asked.append((url, timeout))
            raise OSError("Name or service not known")

    def sleep(seconds: float) -> None:
        pytest.fail(f"waits {seconds} s before it asks again")

    monkeypatch.setattr(huggingface_hub, "get_session", Session)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", sleep)
    before = huggingface_hub.constants.HF_HUB_OFFLINE
    for _ in range(2):
        with pytest.raises(EverlongError) as refusal:
            OPENED[kind]()
        assert UNREACHABLE in str(refusal.value)
        assert "\n" not in str(refusal.value)
    assert asked == [(huggingface_hub.constants.ENDPOINT, _hub.PATIENCE)]
    assert before == huggingface_hub.constants.HF_HUB_OFFLINE


@pytest.mark.parametrize("kind", OPENED)
def test_where_one_is_offline_by_choice_the_hub_is_not_asked_at_all(kind, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: pytest.fail("asked the hub"))
    with pytest.raises(EverlongError, match=UNREACHABLE):
        OPENED[kind]()


def test_where_the_hub_answers_the_libraries_go_their_own_way(monkeypatch):
    monkeypatch.setattr(_hub, "is_reachable", lambda: True)
    with pytest.raises(ValueError, match="their own"), _hub.asked_once():
        raise ValueError("their own")
