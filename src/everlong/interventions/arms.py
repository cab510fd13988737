"""Arms of an experiment as a person writes them: METHOD, or METHOD,setting=value,... Free of torch."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from everlong.errors import EverlongError
from everlong.interventions.methods import CONFIGS

SWITCHES = {"on": True, "true": True, "off": False, "false": False}


@dataclass(frozen=True)
class Arm:
    """A method and what it is set to, otherwise than by default.

    Attributes:
        label: as it was written; it names the arm in records, folders and tables.
        method: a name in the registry.
        settings: fields of its configuration.
    """

    label: str
    method: str
    settings: Mapping[str, Any]

    def takes(self, setting: str) -> bool:
        """Whether the method has a setting, and the arm leaves it open."""
        return setting not in self.settings and setting in {field.name for field in fields(CONFIGS[self.method])}


def parse_arm(text: str, flag: str = "--methods") -> Arm:
    """The arm that is written as ``text``: state_passing, random_noise,scale=0.3, correlated_noise,rank=0,mean=head.

    Args:
        text: what was written.
        flag: where, for messages.

    Raises:
        EverlongError: an unknown method or setting, with the known ones, or a value that cannot be one of it.
    """
    method, *written = text.split(",")
    if method not in CONFIGS:
        raise EverlongError(f"unknown method {method!r} in {flag}; known: {', '.join(CONFIGS)}")
    kinds = get_type_hints(CONFIGS[method])
    settings: dict[str, Any] = {}
    for setting in written:
        name, equals, value = setting.partition("=")
        if name not in kinds or not equals or name in settings:
            raise EverlongError(
                f"{setting!r} in {flag} {text} is no new setting=value of {method}; "
                f"it has {', '.join(kinds) or 'no settings'}"
            )
        settings[name] = _value(value, kinds[name], f"{name} is {value!r} in {flag} {text}")
    CONFIGS[method](**settings)  # out of range, it is refused here
    return Arm(text, method, MappingProxyType(settings))


def describe_methods() -> str:
    """All methods with their settings and defaults, for help."""
    return "; ".join(
        name + (f" ({', '.join(f'{f.name}={_written(f)}' for f in fields(config))})" if fields(config) else "")
        for name, config in CONFIGS.items()
    )


def _value(text: str, kind: Any, what: str) -> Any:
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise EverlongError(f"{what}; it must be one of {', '.join(get_args(kind))}")
        return text
    if get_origin(kind) is tuple:
        return tuple(_value(part, get_args(kind)[0], what) for part in text.split("+"))
    if kind is bool:
        if text not in SWITCHES:
            raise EverlongError(f"{what}; it must be on or off")
        return SWITCHES[text]
    try:
        return kind(text)
    except ValueError:
        raise EverlongError(f"{what}; it must be {'a whole number' if kind is int else 'a number'}") from None


def _written(field: Any) -> str:
    """A default, as it is written in an arm."""
    assert field.default is not MISSING, "every setting has a default"
    if isinstance(field.default, bool):
        return "on" if field.default else "off"
    return "+".join(field.default) if isinstance(field.default, tuple) else str(field.default)
