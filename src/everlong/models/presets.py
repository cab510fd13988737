"""Published sizes by name, each with the context that it was trained at."""

from dataclasses import dataclass
from typing import Any

from everlong.models.config import GLAConfig, LanguageModelConfig, Mamba2Config, RWKV6Config


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A published model: its configuration and its training context in tokens."""

    config: LanguageModelConfig
    context: int


def _official_mamba2(d_model: int, n_layer: int) -> Preset:
    return Preset(config=Mamba2Config(vocab_size=50277, d_model=d_model, n_layer=n_layer), context=2048)


def _finch(d_model: int, n_layer: int) -> Preset:
    """BlinkDL's rwkv-6-world; models 4096 wide have low-rank maps of twice the rank."""
    double = 2 if d_model == 4096 else 1
    config = RWKV6Config(
        vocab_size=65536, d_model=d_model, n_layer=n_layer, proj_low_rank_dim=32 * double, gate_low_rank_dim=64 * double
    )
    return Preset(config=config, context=4096)


def _of_the_paper(kind: type[LanguageModelConfig], context: int) -> Preset:
    """The 70M models that the paper trains from scratch, over the GPT-NeoX vocabulary."""
    return Preset(config=kind(vocab_size=50277, d_model=512, n_layer=12, tie_embeddings=True), context=context)


PRESETS: dict[str, Preset] = {
    "gla-340m": Preset(config=GLAConfig(vocab_size=32000, d_model=1024, n_layer=24), context=512),
    "gla-70m": _of_the_paper(GLAConfig, 512),
    "mamba2-1.3b": _official_mamba2(2048, 48),
    "mamba2-130m": _official_mamba2(768, 24),
    "mamba2-370m": _official_mamba2(1024, 48),
    "mamba2-780m": _official_mamba2(1536, 48),
    "rwkv6-1.6b": _finch(2048, 24),
    "rwkv6-14b": _finch(4096, 61),
    "rwkv6-3b": _finch(2560, 32),
    "rwkv6-70m": _of_the_paper(RWKV6Config, 256),
    "rwkv6-7b": _finch(4096, 32),
}


def published_context(name: str) -> int | None:
    """The training context of the preset that a folder or hub id is named after, or None."""
    preset: Any = PRESETS.get(name.rstrip("/").rsplit("/", 1)[-1])
    return preset.context if preset else None
