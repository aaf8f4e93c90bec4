"""What a person claims by name is not declined: there a refusal is a failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from aggverify.checks.base import Check, Finding
from aggverify.checks.refusal import refusal
from aggverify.checks.spaces import spread
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import grid, hard_cases
from aggverify.generation.space import Space
from aggverify.steps.case import Case
from aggverify.steps.dimensions import BY_FEATURE, Dimension

NAME = "claims_are_not_refused"
CODE = "AGV125"
_CASES = 4
"""Tried of each dimension: that all of it is refused is known already."""


def space(subject: Subject) -> Space | None:
    """All layouts there are, where something is refused that was claimed."""
    if not any(r.feature in subject.claimed for r in subject.refused):
        return None
    return spread(subject.knowing(refused=()), min_units=1)


def refused_cases(subject: Subject) -> Iterator[Case]:
    """Yield the smallest stored cases of what is refused although it was claimed."""
    wide = subject.knowing(refused=())
    kinds = spread(wide).cp_kinds
    stored = sorted((*hard_cases(), *grid(subject.max_world, kinds)), key=lambda case: case.size)
    for one in subject.refused:
        if one.feature in subject.claimed:
            size = BY_FEATURE[one.feature].size
            yield from islice((case for case in stored if size(case) > one.beyond), _CASES)


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Return a refusal of a case that has something of what was claimed."""
    [execution] = executions
    for dimension in _claimed(subject, execution.case):
        words = refusal(execution, dimension.concerned(execution.case))
        if words is not None:
            message = (
                f"{dimension.title} is claimed (--claim {dimension.feature}), and refused: {words}"
            )
            case, fault = execution.case, execution.failure
            return Finding(CODE, NAME, message, case, subject.mode, fault=fault)
    return None


def _claimed(subject: Subject, case: Case) -> Iterator[Dimension]:
    found = (BY_FEATURE[feature] for feature in sorted(subject.claimed & BY_FEATURE.keys()))
    return (dimension for dimension in found if dimension.size(case) > 1)


CHECK = Check(
    name=NAME,
    title="nothing that is claimed by name is refused",
    space=space,
    judge=judge,
    only=refused_cases,
    not_applicable="refuses nothing that is claimed by name",
)
