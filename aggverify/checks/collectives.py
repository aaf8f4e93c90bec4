"""All ranks issue the same collectives in the same order, those with nothing to add included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aggverify.checks.base import Check, Finding, failure_finding
from aggverify.checks.layout import COMBINED
from aggverify.execution import Execution
from aggverify.strategies import Space
from aggverify.subject import Subject

NAME = "ranks_issue_the_same_collectives"
_CODES = ("AGV402", "AGV404", "AGV405")


def space(subject: Subject) -> Space | None:
    """Several ranks, with prompts so long and masks so empty that some have no token."""
    base = COMBINED.space(subject)
    if base is None or max(base.max_dp, base.max_cp) == 1:
        return None
    return replace(
        base,
        max_dp=min(base.max_dp, 4),
        max_cp=min(base.max_cp, 4),
        max_microbatches=min(base.max_microbatches, 2),
        min_world=2,
        max_world=min(base.max_world, 4),
        empty_samples=True,
        blank_a_unit=True,
    )


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """The trace of every rank, group by group, as the world compares it; and what they agree on."""
    found = failure_finding(NAME, subject, executions[0])
    return found if found is not None and found.code in _CODES else None


CHECK = Check(
    name=NAME,
    title="every rank of a group issues the same collectives in the same order",
    tests="",
    space=space,
    variants=lambda case: (case,),
    judge=judge,
    project=lambda case: case,
    max_examples=40,
)
