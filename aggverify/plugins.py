"""Objects that installed packages bring by entry points, read when first needed.

A package's ``[project.entry-points."aggverify.conventions"]`` names objects; the name there must be
the object's own. One that cannot be loaded or used is named in a warning and left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class PluginWarning(UserWarning):
    """A package brings something that cannot be used."""


_found: dict[str, Mapping[str, Any]] = {}


def brought(group: str, kind: type[T], taken: Collection[str] = ()) -> Mapping[str, T]:
    """Usable objects of that kind by name; nothing is imported where no package brings any.

    ``taken``: names that are in use.
    """
    if group not in _found:
        _found[group] = _loaded(group, kind, taken)
    return _found[group]


def objects_of(kind: Callable[[], type[T]], names: Iterable[str]) -> list[T]:
    """Return the tool's own objects, named as entry points name a package's: ``module:OBJECT``.

    So one line registers one. Raises where a name is wrong, which is a mistake of the tool.
    """
    found = []
    for name in names:
        module, _, attribute = name.partition(":")
        value = getattr(import_module(module), attribute)
        if not isinstance(value, kind()):
            raise TypeError(f"{name} is no {kind().__name__}: {value!r:.200}")
        found.append(value)
    return found


def declared(group: str) -> bool:
    """Whether any package declares an entry point of the group; nothing is imported."""
    return bool(_entries(group))


def forget() -> None:
    """Look again when something is needed next: for tests that install a package."""
    _found.clear()


def _entries(group: str) -> Collection[EntryPoint]:
    from importlib.metadata import entry_points

    return entry_points(group=f"aggverify.{group}")


def _loaded(group: str, kind: type, taken: Collection[str]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for entry in _entries(group):
        try:
            value = entry.load()
            why = _unusable(entry.name, value, kind)
        except Exception as error:  # the package's code may raise anything
            why = f"{type(error).__name__}: {error}"
        if why is None and (entry.name in found or entry.name in taken):
            why = "that name is in use"
        if why is None:
            found[entry.name] = value
            continue
        whose = f" of {entry.dist.name}" if entry.dist is not None else ""
        left_out(f"{entry.name!r}{whose}", group, why)
    return found


def left_out(what: str, group: str, why: str) -> None:
    """Warn that an object of a package is not used, and why."""
    text = " ".join(f"aggverify.{group} {what} is left out: {why}".split())
    warnings.warn(text[:500], PluginWarning, stacklevel=2)


def _unusable(name: str, value: Any, kind: type) -> str | None:
    if not isinstance(value, kind) or isinstance(value, type):
        return f"it is no {kind.__name__}"
    own = getattr(value, "name", name)
    return None if own == name else f"it is named {own!r}"


class Table(Mapping[str, T]):
    """The tool's own objects by name, and after them what packages bring.

    Looking up one of ``own`` reads no entry points.
    """

    def __init__(self, group: str, kind: Callable[[], type[T]], own: Mapping[str, T]) -> None:
        self._group, self._kind, self.own = group, kind, own

    def __getitem__(self, name: str) -> T:
        return self.own[name] if name in self.own else self._brought()[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self.own, *self._brought()])

    def __len__(self) -> int:
        return len(self.own) + len(self._brought())

    def _brought(self) -> Mapping[str, T]:
        return brought(self._group, self._kind(), self.own.keys())
