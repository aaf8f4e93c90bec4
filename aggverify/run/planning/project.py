"""How far a person's project goes: what lies outside is somebody else's."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path

from aggverify.files import resolved

_SIGNS = (".git", "pyproject.toml")


def folders(start: Path) -> tuple[Path, ...]:
    """Return ``start`` and the folders above it as far as its project goes.

    That is to the repository's, else to the nearest with a pyproject.toml; to the file system's
    root where there is neither. Not as far as a folder like /tmp, in which anybody may leave such a
    file.
    """
    every = tuple(_up(start))
    for sign in _SIGNS:
        for number, folder in enumerate(every):
            if (folder / sign).exists():
                return every[: number + 1]
    return every


def _up(start: Path) -> Iterator[Path]:
    yield start
    for folder in start.parents:
        with suppress(OSError):
            if folder.stat().st_mode & _ANYBODYS == _ANYBODYS:
                return
        yield folder


_ANYBODYS = stat.S_ISVTX | stat.S_IWOTH
"""The mode of a folder like /tmp: anybody may write there."""


def root(start: Path) -> Path:
    """Return the project's folder; ``start`` itself where there is no project."""
    last = folders(start)[-1]
    return last if any((last / sign).exists() for sign in _SIGNS) else start


def places(module: str, path: Sequence[str]) -> list[Path]:
    """Return where the code of a module on that path lies; nothing is imported.

    ``/``, which is in no project, where that is not known: other finders may take it from anywhere.
    """
    found: list[str] = []
    name, folders = "", list(path)
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = None
        with suppress(ImportError, ValueError):
            spec = PathFinder.find_spec(name, folders)
        if spec is None:
            return [Path("/")]
        folders = list(spec.submodule_search_locations or ())
        found += folders if spec.origin is None else [*folders, spec.origin]
    return [resolved(Path(each)) for each in found]
