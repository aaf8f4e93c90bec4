"""T16 for functions that reduce no losses: each call is refused or answered, as it must be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from aggverify.checks.base import Check, Finding, failure_finding
from aggverify.conventions.calls import JudgedCall, PerCallConvention
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.generation.space import Space
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

NAME = "calls_are_answered_rightly"
ACCEPTED, MISTAKEN = "AGV504", "AGV505"
MOST = 8
"""Calls that a message names."""


LAYOUTS = (("1/1", "0", 1), ("1/1; 1/1; 1/1; 1/1", "0 1 | 2 3", 2))
"""Steps of which nothing is reduced, their micro-batches, and context-parallel ranks."""


def space(subject: Subject) -> Space | None:
    """Up to two of every size."""
    if not subject.only_called:
        return None
    return Space(max_dp=2, max_cp=2, max_microbatches=2, max_world=subject.max_world)


def cases(subject: Subject) -> Iterator[Case]:
    """One rank, and as many as the convention calls on."""
    assert isinstance(subject.convention, PerCallConvention)
    for text, cells, cp in LAYOUTS if subject.convention.ranks > 1 else LAYOUTS[:1]:
        step = parse_step(text)
        yield Case(step, Layout(parse_micro_batches(cells), cp), plain_losses(step))


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Report refused right calls before accepted wrong ones: refusing everything is no merit."""
    ran = executions[0]
    failed = failure_finding(NAME, subject, ran)
    if failed is not None:
        return failed
    found = dict(ran.refusals)
    assert isinstance(subject.convention, PerCallConvention)
    wrong = [(call, text) for call in subject.convention.calls if (text := found.get(call.name))]
    mistaken = [f"{call.sentence}: {text}" for call, text in wrong if not call.refused]
    if mistaken:
        return _finding(MISTAKEN, subject, ran, "\n".join(mistaken[:MOST]))
    accepted = [call for call, _ in wrong]
    if not accepted:
        return None
    listed = "\n".join(f"accepted: {call.sentence}" for call in accepted[:MOST])
    more = len(accepted) - MOST
    finding = _finding(ACCEPTED, subject, ran, listed + f"\nand {more} more" * (more > 0))
    return replace(finding, signs=tuple(f"accepts {call.name}" for call in accepted))


def _finding(code: str, subject: Subject, ran: Execution, message: str) -> Finding:
    return Finding(code, NAME, message, ran.case, subject.mode)


def summary(calls: Sequence[JudgedCall]) -> str:
    """How many of either kind."""
    refused = sum(call.refused for call in calls)
    return f"{refused} calls that must be refused and {len(calls) - refused} that must not"


def _established(subject: Subject, cases: int) -> str:
    assert isinstance(subject.convention, PerCallConvention)
    return summary(list(subject.convention.calls))


CHECK = Check(
    name=NAME,
    title="calls that contradict themselves raise, and their right neighbours do not",
    tests="T16",
    space=space,
    only=cases,
    variants=lambda case: (RunSpec(case, misuse=True),),
    judge=judge,
    of_calls=True,
    as_found=True,
    establishes=_established,
)
