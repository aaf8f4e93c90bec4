"""Logs that the trainer's own function has merged, in every rank.

What an adapter's ``merge_logs`` returns is noted with a rank's last micro-batch, and nothing with
the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject

OBJECTIVE = "loss"
"""The key of a log that must be the step scalar."""


def applies(subject: Subject) -> bool:
    """Whether the convention's trainer merges logs by its own function."""
    return getattr(subject.convention, "logs", "engine") == "merge_logs"


def merged(ran: Execution) -> Mapping[str, tuple[float, ...]]:
    """Return the merged logs of the first rank that has any: trainers log on one."""
    last = (logs[-1] for logs in ran.logs if logs)
    return next((dict(log) for log in last if isinstance(log, tuple) and log), {})


def objective(ran: Execution) -> str | None:
    """Return the key that must be the step scalar: ``loss``, or ``train/loss``."""
    return next((key for key in merged(ran) if key.rpartition("/")[2] == OBJECTIVE), None)


def value(ran: Execution, key: str) -> Fraction | None:
    """Return the merged number of a key; None where it is not finite."""
    [number] = merged(ran)[key]
    return Fraction(number) if np.isfinite(number) else None


def malformed(ran: Execution) -> str | None:
    """Return what is wrong with the merged logs that were returned."""
    faults = (
        f"rank {r}, merged: {log}"
        for r, logs in enumerate(ran.logs)
        for log in logs
        if isinstance(log, str)
    )
    if (fault := next(faults, None)) is not None:
        return fault
    if not merged(ran):
        return "merge_logs has returned no key on any rank"
    pairs = (key for key, numbers in merged(ran).items() if len(numbers) != 1)
    return next((f"log[{key!r}] is a pair once merged, and no number" for key in pairs), None)
