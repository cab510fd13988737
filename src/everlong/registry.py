"""Lazy registries: one alphabetical line a member, imported only when it is asked for."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from everlong.errors import EverlongError


class Registry(Mapping[str, Any]):
    """Names mapped to objects that live at ``"module:attribute"`` and are imported on first use.

    Args:
        family: what the members are, in the singular, for error messages ("architecture", "intervention").
        members: name -> "package.module:attribute".
    """

    def __init__(self, family: str, members: Mapping[str, str]):
        self.family = family
        self._members = dict(sorted(members.items()))

    def __getitem__(self, name: str) -> Any:
        """The member; an unknown name is an error that lists the known ones."""
        if name not in self._members:
            raise EverlongError(f"unknown {self.family} {name!r}; known: {', '.join(self._members)}")
        module, attribute = self._members[name].split(":")
        return getattr(import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members
