"""T8: masks that differ from lengths (tool tokens, truncation), and tokens rejected afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aggverify.checks.base import Check, Finding, failure_finding
from aggverify.checks.layout import COMBINED, judge_layout
from aggverify.execution.laboratory import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case

NAME = "masked_tokens_are_not_counted"
CODE = "AGV142"


def space(subject: Subject) -> Space | None:
    """Small layouts with masked tokens; rejected ones too where that is claimed."""
    if not subject.has_oracle:
        return None
    base = COMBINED.space(subject) or Space()
    return replace(
        base,
        max_dp=min(base.max_dp, 2),
        max_cp=min(base.max_cp, 2),
        max_microbatches=min(base.max_microbatches, 2),
        min_units=1,
        needs_hole=True,
        rejects="rejection" in subject.features,
    )


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """The oracle's weights, whose denominators follow the declared policy."""
    failed = failure_finding(NAME, subject, executions[0])
    if failed is not None or executions[0].weights is None:
        return failed
    return judge_layout(NAME, CODE, subject, [], executions[0])


def with_holes(case: Case) -> Case:
    """Every response of three tokens or more loses its middle one, of two its last; in every other
    case by rejection, so that there are stored cases for either."""
    rejects = case.step.num_response_tokens % 2 == 1
    samples = (_with_hole(s, rejects=rejects) for s in case.step.samples)
    return replace(case, step=Step(tuple(samples)))


def _with_hole(sample: Sample, *, rejects: bool) -> Sample:
    mask = bytearray(sample.loss_mask)
    if len(mask) > 1:
        mask[1 if len(mask) == 2 else len(mask) // 2] = 0
    original = sample.loss_mask if rejects else None
    return replace(sample, loss_mask=bytes(mask), original_mask=original)


CHECK = Check(
    name=NAME,
    title="tokens that are masked or rejected weigh nothing and count as the policy says",
    tests="T8",
    space=space,
    variants=lambda case: (case,),
    judge=judge,
    project=with_holes,
    requires_formula=True,
    requires=("independent",),
    unclaimed="judged by an oracle only: what is masked may still be content",
    max_examples=30,
    max_stored=20,
)
