"""Published sizes by name, each with the context that it was trained at.

``mamba-*`` and ``mamba2-*`` from 130m on are the official checkpoints of state-spaces; 45m, 85m and 125m are the models
that Buitrago Ruiz & Gu (arXiv 2507.02782) trained from scratch, their sizes inferred from the names.
"""

from dataclasses import dataclass
from typing import Any

from everlong.models.config import GLAConfig, LanguageModelConfig, Mamba1Config, Mamba2Config, RWKV6Config

NEOX = 50277  # token ids of the GPT-NeoX-20B tokenizer


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A published model: its configuration, and its training context in tokens or None where several were trained."""

    config: LanguageModelConfig
    context: int | None


def _mamba1(d_model: int, n_layer: int) -> Preset:
    return Preset(config=Mamba1Config(vocab_size=NEOX, d_model=d_model, n_layer=n_layer), context=2048)


def _mamba2(d_model: int, n_layer: int, context: int | None = 2048) -> Preset:
    return Preset(config=Mamba2Config(vocab_size=NEOX, d_model=d_model, n_layer=n_layer), context=context)


def _finch(d_model: int, n_layer: int) -> Preset:
    """BlinkDL's rwkv-6-world; models 4096 wide have low-rank maps of twice the rank."""
    double = 2 if d_model == 4096 else 1
    config = RWKV6Config(
        vocab_size=65536, d_model=d_model, n_layer=n_layer, proj_low_rank_dim=32 * double, gate_low_rank_dim=64 * double
    )
    return Preset(config=config, context=4096)


def _of_the_paper(kind: type[LanguageModelConfig], context: int) -> Preset:
    """The 70M models that the paper trains from scratch, over the GPT-NeoX vocabulary."""
    return Preset(config=kind(vocab_size=NEOX, d_model=512, n_layer=12, tie_embeddings=True), context=context)


PRESETS: dict[str, Preset] = {
    "gla-340m": Preset(config=GLAConfig(vocab_size=32000, d_model=1024, n_layer=24), context=512),
    "gla-70m": _of_the_paper(GLAConfig, 512),
    "mamba-1.4b": _mamba1(2048, 48),
    "mamba-130m": _mamba1(768, 24),
    "mamba-2.8b": _mamba1(2560, 64),
    "mamba-370m": _mamba1(1024, 48),
    "mamba-790m": _mamba1(1536, 48),
    "mamba2-1.3b": _mamba2(2048, 48),
    "mamba2-125m": _mamba2(768, 24, context=None),  # Fig. 2: 1024, 2048 and 4096
    "mamba2-130m": _mamba2(768, 24),
    "mamba2-2.7b": _mamba2(2560, 64),
    "mamba2-370m": _mamba2(1024, 48),
    "mamba2-45m": _mamba2(512, 12, context=1024),  # Fig. 11
    "mamba2-780m": _mamba2(1536, 48),
    "mamba2-85m": _mamba2(768, 12, context=1024),  # Fig. 3
    "rwkv6-1.6b": _finch(2048, 24),
    "rwkv6-14b": _finch(4096, 61),
    "rwkv6-3b": _finch(2560, 32),
    "rwkv6-70m": _of_the_paper(RWKV6Config, 256),
    "rwkv6-7b": _finch(4096, 32),
}


def published_context(name: str) -> int | None:
    """The training context of the preset that a folder or hub id is named after, or None.

    The official checkpoints are also on the hub in transformers' format, as ``mamba-130m-hf``.
    """
    preset: Any = PRESETS.get(name.rstrip("/").rsplit("/", 1)[-1].removesuffix("-hf"))
    return preset.context if preset else None
