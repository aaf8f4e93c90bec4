"""When an exception is a refusal: meant, worded, and raised wherever it had to be."""

from __future__ import annotations

import re
from collections.abc import Set

from aggverify.execution.executed import Execution
from aggverify.world import Raised

DELIBERATE = ("ValueError", "AssertionError", "NotImplementedError", "RuntimeError")
"""Built-in types people raise to refuse, in addition to their own; an IndexError is an accident."""
_ASSERT = re.compile(r"assert\b\s*")
_SHAPES = re.compile(
    r"\bshapes?\b|\bnumel\b|\blen\(|\.size\(|torch\.Size|\bbroadcast|\bmismatch|"
    r"\b(?:do|does|did) ?n[o']t match|\bmust match|\bsame (?:length|size)|\blengths? (?:of|differ)",
    re.IGNORECASE,
)
"""Words about sizes that do not fit together: such an exception is about arguments, no refusal."""


def refusal(
    execution: Execution, concerned: Set[int] = frozenset(), *, by_accident: bool = False
) -> str | None:
    """Return the candidate's words if it refused the step on purpose, else None.

    A ``raise`` or ``assert`` in code that is neither torch's nor the standard library's, not about
    shapes, on all ranks ``concerned``, and on one at least. ``by_accident``: or any exception on
    all of these.
    """
    fault = execution.failure
    if fault is None or fault.kind != "exception" or fault.error is None:
        return None
    if concerned - fault.errors.keys():
        return None
    if by_accident and concerned:
        return fault.message
    messages = [_words(fault.errors[rank]) for rank in {fault.rank or 0, *concerned}]
    return messages[0] if all(messages) else None


def _words(error: Raised) -> str | None:
    """Return the message, or what a bare ``assert`` asserts; None where it is no refusal."""
    if error.type not in DELIBERATE and "." not in error.type:
        return None
    if not (error.stated and error.frames and error.frames[-1].owner == "candidate"):
        return None
    if error.before is not None and not (error.before.stated or error.before.type == "KeyError"):
        return None  # raised while handling an exception that nothing raised on purpose
    source = error.frames[-1].source
    words = error.message.strip() or (_ASSERT.sub("", source, 1) if _ASSERT.match(source) else "")
    return words if words and not _SHAPES.search(words) else None
