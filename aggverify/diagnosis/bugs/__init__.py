"""Bugs that really happened, with the trace each leaves. Data: one entry a bug."""

from __future__ import annotations

from aggverify.diagnosis.bugs import contract, counts, masks, parallel
from aggverify.diagnosis.bugs.base import Bug, Trace

BUGS: tuple[Bug, ...] = (*contract.BUGS, *masks.BUGS, *counts.BUGS, *parallel.BUGS)
"""The first that explains a trace is told, so the more specific ones stand first."""


def known_bug(trace: Trace) -> Bug | None:
    """The first bug whose trace fits."""
    return next((bug for bug in BUGS if bug.explains(trace)), None)


__all__ = ["BUGS", "Bug", "Trace", "known_bug"]
