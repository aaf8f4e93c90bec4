"""How far a person's project goes: what lies outside is somebody else's."""

from __future__ import annotations

from pathlib import Path

_SIGNS = (".git", "pyproject.toml")


def folders(start: Path) -> tuple[Path, ...]:
    """``start`` and the folders above it as far as its project goes: to the repository's, else to
    the nearest with a pyproject.toml; to the file system's root where there is neither."""
    every = (start, *start.parents)
    for sign in _SIGNS:
        for number, folder in enumerate(every):
            if (folder / sign).exists():
                return every[: number + 1]
    return every


def root(start: Path) -> Path:
    """The project's folder; ``start`` itself where there is no project."""
    last = folders(start)[-1]
    return last if any((last / sign).exists() for sign in _SIGNS) else start
