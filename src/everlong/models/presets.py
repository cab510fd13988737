"""Published sizes by name, each with the context that it was trained at."""

from dataclasses import dataclass
from typing import Any

from everlong.models.config import LanguageModelConfig, Mamba2Config


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A published model: its configuration and its training context in tokens."""

    config: LanguageModelConfig
    context: int


def _official_mamba2(d_model: int, n_layer: int) -> Preset:
    return Preset(config=Mamba2Config(vocab_size=50277, d_model=d_model, n_layer=n_layer), context=2048)


PRESETS: dict[str, Preset] = {
    "mamba2-1.3b": _official_mamba2(2048, 48),
    "mamba2-130m": _official_mamba2(768, 24),
    "mamba2-370m": _official_mamba2(1024, 48),
    "mamba2-780m": _official_mamba2(1536, 48),
}


def published_context(name: str) -> int | None:
    """The training context of the preset that a folder or hub id is named after, or None."""
    preset: Any = PRESETS.get(name.rstrip("/").rsplit("/", 1)[-1])
    return preset.context if preset else None
