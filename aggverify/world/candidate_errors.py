"""An exception of the code under test as a value, of bounded size, with whose code raised it."""

from __future__ import annotations

import dis
import linecache
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from aggverify import codec
from aggverify.codec import Part
from aggverify.world.frames import Frame, lines, owner, shown

_MESSAGE_LIMIT = 4_000
_SOURCE_LIMIT = 400
_FRAMES = 60
_CHAIN = 8
_RAISE = dis.opmap["RAISE_VARARGS"]


class Breach(Exception):
    """Raised by a handler itself, about what the code under test did; its message is complete."""

    name = "breach"
    """Of the kind of breach."""


class Raised(Part, frozen=True):
    """An exception.

    ``type``: qualified, without the module for a built-in one. ``frames``: the outermost first.
    ``last``: what the interpreter prints of it after its frames. ``stated``: whether the innermost
    frame stands on a ``raise`` or ``assert`` statement. ``breach``: the name of a :class:`Breach`.
    ``before``: the exception that was being handled; with ``caused`` the cause.
    """

    type: str
    message: str
    frames: tuple[Frame, ...] = ()
    last: str = ""
    stated: bool = False
    breach: str = ""
    before: Raised | None = None
    caused: bool = False

    @property
    def text(self) -> str:
        """``ValueError: 3 is not 4``."""
        return f"{self.type}: {self.message}".removesuffix(": ")

    @property
    def candidate_line(self) -> str:
        """The innermost line of the candidate's, "" for none."""
        return next((f.source for f in reversed(self.frames) if f.owner == "candidate"), "")

    @property
    def traceback(self) -> str:
        """The candidate's part of the traceback, with the exceptions before it."""
        return "\n".join(self._traceback())

    def _traceback(self) -> Iterator[str]:
        if self.before is not None:
            yield from self.before._traceback()
            yield f"\n{_CAUSED if self.caused else _MEANWHILE}\n"
        if self.frames:
            yield "Traceback (most recent call last):"
            yield from lines(shown(self.frames))
        yield self.last or self.text

    def to_json(self) -> dict[str, Any]:
        """Plain data for :meth:`from_json`."""
        data: dict[str, Any] = to_builtins(self)
        return data

    @staticmethod
    def from_json(data: object) -> Raised:
        """Read an exception; raises InputError on anything else."""
        return codec.read(Raised, data, "the error")


_CAUSED = "The above exception was the direct cause of the following exception:"
_MEANWHILE = "During handling of the above exception, another exception occurred:"


def raised(error: BaseException) -> Raised:
    """Return an exception as a value, of bounded size; never raises."""
    try:
        whole = traceback.TracebackException.from_exception(error, limit=-200)
        return _value(error, whole, _CHAIN)
    except Exception:  # RecursionError while following a chain, a broken __str__, ...
        return _plain(error)


def _plain(error: BaseException) -> Raised:
    return Raised(
        _name(type(error)),
        _cut(_text(error)),
        breach=error.name if isinstance(error, Breach) else "",
    )


def _value(error: BaseException, whole: traceback.TracebackException, most: int) -> Raised:
    caused = whole.__cause__ is not None
    hidden = None if whole.__suppress_context__ else whole.__context__
    then, earlier = (error.__cause__, whole.__cause__) if caused else (error.__context__, hidden)
    return replace(
        _plain(error),
        frames=tuple(map(_frame, whole.stack[-_FRAMES:])),
        last=_cut("".join(whole.format_exception_only()).rstrip("\n")),
        stated=_stated(error.__traceback__),
        before=_value(then, earlier, most - 1) if then and earlier and most else None,
        caused=caused,
    )


def _name(kind: type[BaseException]) -> str:
    builtin = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if builtin else f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # an exception whose __str__ raises
        return f"<its text cannot be made: {type(second).__name__}>"


def _frame(found: traceback.FrameSummary) -> Frame:
    file, source = _cut(found.filename), _cut(found.line or "", _SOURCE_LIMIT)
    function = _cut(found.name, _SOURCE_LIMIT)
    return Frame(file, found.lineno or 0, function, owner(file), source, _marked(found, source))


def _marked(found: traceback.FrameSummary, source: str) -> tuple[int, int] | None:
    """Characters of the line, less its indentation; None for all of it, or more than a line."""
    if found.colno is None or found.end_colno is None or found.lineno != found.end_lineno:
        return None
    whole = linecache.getline(found.filename, found.lineno or 0).rstrip()
    if not whole.isascii():  # columns count bytes
        return None
    indent = len(whole) - len(whole.lstrip())
    start, end = found.colno - indent, found.end_colno - indent
    partial = 0 <= start < end <= len(source) and end - start < len(source)
    return (start, end) if partial else None


def _stated(tb: TracebackType | None) -> bool:
    """Whether the innermost frame stands on a ``raise`` or ``assert``, and not on a call."""
    if tb is None:
        return False
    while tb.tb_next is not None:
        tb = tb.tb_next
    code = tb.tb_frame.f_code.co_code
    return 0 <= tb.tb_lasti < len(code) and code[tb.tb_lasti] == _RAISE


def _cut(text: str, limit: int = _MESSAGE_LIMIT) -> str:
    # Cut first, so that of megabytes only that much is encoded. Surrogates become escapes, since
    # neither UTF-8 nor a terminal takes them.
    kept = text[:limit].encode("utf-8", "backslashreplace").decode()
    if len(text) <= limit and len(kept) <= limit:
        return kept
    return f"{kept[:limit]} ... ({len(text)} characters in all)"
