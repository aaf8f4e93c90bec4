"""All ranks must issue the same collectives, and report the same copies of a loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aggverify.checks.base import COLLECTIVES, Check, Finding, Need, failure_finding
from aggverify.checks.judging import loss_text
from aggverify.checks.logs import objective
from aggverify.checks.spaces import cp_kinds, spread
from aggverify.execution.executed import Execution, copies
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.steps.case import Case

SAME = "ranks_issue_the_same_collectives"
COPIES = "copies_of_a_loss_agree"
CODE = "AGV405"


def space(subject: Subject) -> Space | None:
    """Several ranks, with prompts so long and masks so empty that some have no token."""
    found = spread(subject, dp=4, cp=4, micro_batches=2, min_world=2, empty_samples=True)
    if max(found.max_dp, found.max_cp) == 1:
        return None
    return replace(found, max_world=min(4, subject.max_world))


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Return the finding where ranks block, or differ in collectives or in copies of a loss.

    The world compares their traces group by group.
    """
    [ran] = executions
    if ran.failure is None or not ran.failure.is_between_ranks:
        return None
    return failure_finding(SAME, subject, ran)


def _gathered(subject: Subject) -> Space | None:
    """Context-parallel ranks that all hold all losses of a micro-batch, and one value each."""
    if "gathered" not in cp_kinds(subject) or subject.max_world == 1:
        return None
    return spread(subject, dp=1, cp=3, micro_batches=2, cp_kinds=("gathered",), min_world=2)


def _judge_copies(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Compare each rank's copy with the objective; where all are off, another check reports it."""
    [ran] = executions
    wanted = objective(subject, ran)
    if wanted is None:
        return None
    values = [
        ran.scalar(subject, copies(ran.local_losses, ran.case, c))
        for c in range(ran.case.layout.cp_size)
    ]
    right = [v is not None and wanted.is_met(v) for v in values]
    if all(right) or not any(right):
        return None
    reported = ", ".join(map(loss_text, values))
    message = f"the context-parallel ranks all hold the same losses, and report {reported}"
    signs = ("copies differ",)
    return Finding(CODE, COPIES, message, ran.case, subject.mode, signs=signs)


def _with_copies(case: Case) -> Case:
    """Return a stored case with the shards of each sample gathered."""
    return case.with_layout(replace(case.layout, cp_kind="gathered"))


SAME_COLLECTIVES = Check(
    name=SAME,
    title="every rank of a group issues the same collectives in the same order",
    space=space,
    judge=judge,
    max_examples=40,
    needs=(Need(COLLECTIVES, "they issue different ones already"),),
)
AGREEMENT = Check(
    name=COPIES,
    title="ranks that hold copies of the same losses report the same value",
    space=_gathered,
    judge=_judge_copies,
    project=_with_copies,
    max_examples=20,
    linear_only=True,
    of_weights=False,
)
