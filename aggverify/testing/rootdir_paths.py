"""Paths of a test file, relative to pytest's rootdir, as they are shown."""

from __future__ import annotations

from pathlib import Path

from aggverify.run.planning.target import is_path, split


def placed(target: str, root: Path) -> str:
    """Return the target as it is written where pytest was started."""
    head, name = split(target)
    path = Path(head)
    if not is_path(head) or path.is_absolute():
        return target
    return str(below(root / path, Path.cwd())) + (f":{name}" if name else "")


def below(path: Path, here: Path) -> Path:
    """Relative to ``here`` where it lies below it."""
    return path.relative_to(here) if path.is_relative_to(here) else path
