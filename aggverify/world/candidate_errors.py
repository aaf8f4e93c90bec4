"""Tell an exception of the code under test as data, without this package's own frames."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

_OURS = str(Path(__file__).resolve().parent.parent)
_MESSAGE_LIMIT = 4_000
_TRACEBACK_LIMIT = 16_000
_FRAMES = 30


def told(error: BaseException) -> dict[str, Any]:
    """``{"type", "message", "traceback"}`` of an exception, of bounded size, never raising."""
    name = type(error).__qualname__
    if type(error).__module__ not in ("builtins", "__main__"):
        name = f"{type(error).__module__}.{name}"
    return {
        "type": name,
        "message": _cut(_text(error), _MESSAGE_LIMIT),
        "traceback": _cut(_traceback(error), _TRACEBACK_LIMIT),
    }


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # an exception whose __str__ raises
        return f"<its text cannot be made: {type(second).__name__}>"


def _traceback(error: BaseException) -> str:
    try:
        whole = traceback.TracebackException.from_exception(error, limit=-200)
        whole.stack[:] = _theirs(whole.stack)
        return "".join(whole.format())
    except Exception:  # RecursionError while formatting a chain, a broken __str__, ...
        return ""


def _theirs(frames: traceback.StackSummary) -> list[traceback.FrameSummary]:
    kept = [f for f in frames if not f.filename.startswith((_OURS, "<frozen importlib"))]
    # All of it ours: a handler's own mistake, where every frame is needed.
    return (kept or list(frames))[-_FRAMES:]


def _cut(text: str, limit: int) -> str:
    # Surrogates survive neither UTF-8 nor a terminal. Cut first: of megabytes only that much.
    told = text[:limit].encode("utf-8", "backslashreplace").decode()
    if len(text) <= limit and len(told) <= limit:
        return told
    return f"{told[:limit]} ... ({len(text)} characters in all)"
