"""The registry of architectures, and ``create``."""

from dataclasses import fields, replace
from typing import Any

from everlong.errors import EverlongError
from everlong.models.language_model import LanguageModel
from everlong.models.presets import PRESETS
from everlong.registry import Registry

ARCHITECTURES = Registry(
    "architecture",
    {
        "gla": "everlong.models.gla:GLA",
        "mamba1": "everlong.models.mamba1:Mamba1",
        "mamba2": "everlong.models.mamba2:Mamba2",
        "rwkv6": "everlong.models.rwkv6:RWKV6",
    },
)
CONFIGS = Registry(
    "architecture",
    {
        "gla": "everlong.models.config:GLAConfig",
        "mamba1": "everlong.models.config:Mamba1Config",
        "mamba2": "everlong.models.config:Mamba2Config",
        "rwkv6": "everlong.models.config:RWKV6Config",
    },
)


def create(name: str, *, vocab_size: int, backend: str = "auto", **config: Any) -> LanguageModel:
    """A freshly initialised model of an architecture ("mamba2") or a preset ("mamba2-130m").

    Args:
        name: an architecture with its official defaults, or a preset.
        vocab_size: number of token ids.
        backend: see ``everlong.ops.backends``.
        config: fields of the architecture's configuration to set otherwise.

    Raises:
        EverlongError: an unknown name or field, with the known ones.
    """
    if name in PRESETS:
        base = PRESETS[name].config
    elif name in CONFIGS:
        base = CONFIGS[name](vocab_size=vocab_size)
    else:
        raise EverlongError(
            f"unknown model {name!r}; architectures: {', '.join(ARCHITECTURES)}; presets: {', '.join(PRESETS)}"
        )
    check_fields(base.architecture, config)
    return ARCHITECTURES[base.architecture](replace(base, vocab_size=vocab_size, **config), backend=backend)


def check_fields(architecture: str, config: dict[str, Any]) -> None:
    """Raises where a configuration has fields that the architecture does not know."""
    known = [field.name for field in fields(CONFIGS[architecture])]
    unknown = sorted(set(config) - set(known))
    if unknown:
        raise EverlongError(f"{architecture} has no setting {', '.join(unknown)}; known: {', '.join(known)}")
