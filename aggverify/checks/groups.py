"""T9: a prompt group split over micro-batches or ranks equals the whole one, or is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from aggverify.checks.base import Check, Finding
from aggverify.checks.judging import judge_spread
from aggverify.checks.refusal import refusal
from aggverify.checks.spaces import spread
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.steps.case import ranks_with_parts

NAME = "split_groups_equal_or_refused"
CODE = "AGV206"


def space(subject: Subject) -> Space | None:
    """Unequal prompt groups, one of them in more than one micro-batch or rank."""
    # What it refuses is still run: it may refuse only some of these.
    features = subject.features | {r.feature for r in subject.refused}
    if subject.claim.group_size or "straddling-groups" not in features:
        return None
    return spread(
        subject,
        dp=1 if subject.keeps_shards_whole else 4,
        cp=1 if subject.nonlinear else 2,
        micro_batches=2,
        split_groups=True,
        whole_groups=False,
        whole_shards=False,
    )


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Equal to the whole group, or loud: a silently different number is a failure."""
    split = executions[-1]
    pairs = subject.compares is not None  # one half without the other raises of any kind
    if refusal(split, ranks_with_parts(split.case), by_accident=pairs) is not None:
        return None
    found = judge_spread(NAME, CODE, subject, executions)
    if found is None or not pairs or not (subject.nonlinear or _lost_its_sign(found)):
        return found
    return replace(found, signs=("split-pairs",))


def _lost_its_sign(found: Finding) -> bool:
    """Whether a weight that should not be 0 is, or has the other sign."""
    pairs = zip(found.expected or (), found.observed or (), strict=True)
    return any(right and right * Fraction(weight) <= 0 for right, weight in pairs)


CHECK = Check(
    name=NAME,
    title="a prompt group that is split has the whole group's weights, or is refused loudly",
    tests="T9",
    space=space,
    variants=lambda case: (case.trivial, case),
    judge=judge,
    control_first=True,
    may_refuse=ranks_with_parts,
    max_examples=30,
    max_stored=20,
)
