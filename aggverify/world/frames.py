"""Frames of Python code as values: where each stands, and whose code it is."""

from __future__ import annotations

import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from aggverify.codec import Part
from aggverify.errors import InputError

Owner = Literal["candidate", "ours", "torch", "python"]
_OURS = f"{Path(__file__).resolve().parents[1]}/"
_INSTALLED = ("/site-packages/", "/dist-packages/")
_RECURSION = 3


class Frame(Part, frozen=True, array_like=True):
    """A line of a function that was being executed.

    ``source``: the line's text without indentation, "" where unknown. ``marked``: from which to
    which of its characters, where the exception came from a part of it.
    """

    file: str
    line: int
    function: str
    owner: Owner
    source: str = ""
    marked: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.marked is None:
            return
        start, end = self.marked
        if not 0 <= start < end <= len(self.source):
            raise InputError(f"no part of a line goes from {start!r:.20} to {end!r:.20}")


class Stack(Part, frozen=True):
    """What one thread was doing: its frames, the innermost first."""

    thread: str
    """As the interpreter numbers it."""
    frames: tuple[Frame, ...]


@lru_cache(maxsize=4096)
def owner(file: str) -> Owner:
    """Return whose code stands in a file.

    It is this package's, torch's, the standard library's, or else the candidate's, with whatever it
    has imported.
    """
    if file.startswith(_OURS):
        return "ours"
    if file.startswith(_torch()):
        return "torch"
    if file.startswith("<"):
        return "python"  # frozen modules, and code made out of a string
    in_library = file.startswith(_library()) and not any(part in file for part in _INSTALLED)
    return "python" if in_library else "candidate"


@lru_cache(maxsize=1)
def _torch() -> str:
    found = find_spec("torch")  # finding it does not import it
    return f"{Path(found.origin).parent}/" if found is not None and found.origin else "\0"


@lru_cache(maxsize=1)
def _library() -> tuple[str, ...]:
    folders = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    own = Path(sys.modules["os"].__file__ or "").parent
    return tuple(f"{folder}/" for folder in {*folders, str(own)})


def shown(frames: Sequence[Frame]) -> list[Frame]:
    """Those worth a person's time: none of ours nor of the interpreter's own, unless all are."""
    theirs = [f for f in frames if f.owner != "ours" and not f.file.startswith("<")]
    return theirs or list(frames)


def lines(frames: Sequence[Frame]) -> list[str]:
    """Frames as the interpreter prints them; of a recursion a few."""
    return list(_few_of_each(frames))


def _few_of_each(frames: Sequence[Frame]) -> Iterator[str]:
    seen: Counter[Frame] = Counter()
    for frame in frames:
        seen[frame] += 1
        if seen[frame] <= _RECURSION:
            yield from _printed(frame)
        elif seen[frame] == _RECURSION + 1:
            yield "  ... and again"


def _printed(frame: Frame) -> Iterator[str]:
    yield f'  File "{frame.file}", line {frame.line}, in {frame.function}'
    if frame.source:
        yield f"    {frame.source}"
    if frame.marked is not None:
        start, end = frame.marked
        yield f"    {' ' * start}{'^' * (end - start)}"
