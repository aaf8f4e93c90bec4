"""When an exception is a refusal: meant, worded, and raised wherever it had to be."""

from __future__ import annotations

import re

from aggverify.execution.laboratory import Execution
from aggverify.steps.case import ranks_with_parts

DELIBERATE = ("ValueError", "AssertionError", "NotImplementedError", "RuntimeError")
"""Types people raise to say no; an IndexError is an accident."""
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line \d+')
_NOT_THEIRS = re.compile(r"/torch/|/lib/python3[^/]*/(?!site-packages/)|^<")
_SAYS_NO = re.compile(r"(^|[:;] *)(raise|assert)[ (]")
"""Also behind its condition on one line, as in ``if odd: raise``."""
_RANKS = re.compile(r" \(on rank (?P<on>[\d, ]+), not on (?P<off>[\d, ]+)\)$")


def refusal(execution: Execution) -> str | None:
    """The candidate's words if it refused the step on purpose, else None.

    A ``raise`` or ``assert`` with a message, of a type in DELIBERATE, in code that is neither
    torch's nor the standard library's, on every rank that holds a part of a split prompt group.
    """
    failure = execution.failure
    if failure is None or failure.kind != "exception" or not _is_deliberate(failure.detail):
        return None
    text = failure.message
    only = _RANKS.search(text)
    if only is not None:
        silent = set(map(int, only["off"].split(", ")))
        if silent & ranks_with_parts(execution.case):
            return None
        text = text[: only.start()]
    kind, _, words = text.partition(": ")
    return text if kind in DELIBERATE and words.strip() else None


def _is_deliberate(traceback: str) -> bool:
    """Whether the innermost frame stands on a ``raise`` or ``assert`` of the candidate's."""
    lines = traceback.splitlines()
    frames = [n for n, line in enumerate(lines) if _FRAME.match(line)]
    if not frames or frames[-1] + 1 >= len(lines):
        return False
    frame = _FRAME.match(lines[frames[-1]])
    assert frame is not None
    statement = lines[frames[-1] + 1].strip()
    return not _NOT_THEIRS.search(frame["file"]) and _SAYS_NO.search(statement) is not None
