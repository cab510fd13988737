"""From the fields of a config.json to an architecture's configuration, with errors in the file's own words."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from everlong.errors import EverlongError
from everlong.models.architectures import CONFIGS, check_fields
from everlong.models.config import LanguageModelConfig


def parse_fields(
    architecture: str, values: Mapping[str, Any], *, path: Path, names: Mapping[str, str] = MappingProxyType({})
) -> LanguageModelConfig:
    """The configuration that ``values`` describe.

    Args:
        architecture: a name from ``everlong.models.architectures``.
        values: our field names -> values as JSON gives them.
        path: the file, for messages.
        names: our field names -> the file's, where they differ, for messages.

    Raises:
        EverlongError: a field is unknown, missing, of the wrong type, or contradicts another.
    """
    kind = CONFIGS[architecture]
    hints = get_type_hints(kind)
    try:
        check_fields(architecture, dict(values))
        parsed = {field: _convert(names.get(field, field), value, hints[field]) for field, value in values.items()}
        required = [f.name for f in fields(kind) if f.default is MISSING and f.name not in values]
        if required:
            raise EverlongError(f"{', '.join(names.get(field, field) for field in required)} is missing")
        return kind(**parsed)
    except EverlongError as error:
        raise EverlongError(f"{path}: {error}") from error


def encode_float(value: float) -> Any:
    """A float in strict JSON, which has no infinity: written as transformers writes it."""
    return {"__float__": "Infinity"} if value == float("inf") else value


def _convert(name: str, value: Any, hint: Any) -> Any:
    if get_origin(hint) is tuple:
        wanted = get_args(hint)
        if not isinstance(value, list | tuple) or len(value) != len(wanted):
            raise EverlongError(f"{name} is {value!r}; it must be a list of {len(wanted)} numbers")
        return tuple(_convert(name, item, kind) for item, kind in zip(value, wanted, strict=True))
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise EverlongError(f"{name} is {value!r}; known: {', '.join(map(str, get_args(hint)))}")
        return value
    if get_origin(hint) in (Union, UnionType):  # a type, or else one of a few words
        kind, words = get_args(hint)
        if type(value) is not kind and value not in get_args(words):
            raise EverlongError(
                f"{name} is {value!r}; it must be of type {kind.__name__}, or {', '.join(get_args(words))}"
            )
        return value
    if isinstance(value, dict) and set(value) == {"__float__"}:
        value = float(value["__float__"])
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is not hint:
        raise EverlongError(f"{name} is {value!r}; it must be of type {hint.__name__}")
    return value
