"""When an exception is a refusal: meant, worded, and raised wherever it had to be."""

from __future__ import annotations

from aggverify.execution.laboratory import Execution
from aggverify.steps.case import ranks_with_parts

DELIBERATE = ("ValueError", "AssertionError", "NotImplementedError", "RuntimeError")
"""Types people raise to say no; an IndexError is an accident."""


def refusal(execution: Execution) -> str | None:
    """The candidate's words if it refused the step on purpose, else None.

    A ``raise`` or ``assert`` with a message, of a type in DELIBERATE, in code that is neither
    torch's nor the standard library's, on every rank that holds a part of a split prompt group.
    """
    fault = execution.failure
    error = None if fault is None or fault.kind != "exception" else fault.error
    if fault is None or error is None or error.type not in DELIBERATE:
        return None
    if not (error.stated and error.frames and error.frames[-1].owner == "candidate"):
        return None
    if not error.message.strip() or ranks_with_parts(execution.case) - fault.errors.keys():
        return None
    return error.text
