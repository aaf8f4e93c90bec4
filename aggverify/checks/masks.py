"""T8: masks that differ from lengths (tool tokens, truncation), and tokens rejected afterwards."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from aggverify.checks.base import LAYOUT, RIGHT_FORMULA, Check
from aggverify.checks.judging import judge_spread
from aggverify.checks.spaces import small
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
    return small(subject, needs_hole=True, rejects="rejection" in subject.features)


def with_holes(case: Case) -> Case:
    """Every response of three tokens or more loses its middle one, of two its last.

    In every other case by rejection, so that there are stored cases for either.
    """
    rejects = case.step.num_response_tokens % 2 == 1
    samples = (_with_hole(s, rejects=rejects) for s in case.step.samples)
    return replace(case, step=Step(tuple(samples)))


def _with_hole(sample: Sample, *, rejects: bool) -> Sample:
    mask = bytearray(sample.loss_mask)
    if len(mask) > 1:
        mask[len(mask) // 2] = 0
    original = sample.loss_mask if rejects else None
    return replace(sample, loss_mask=bytes(mask), original_mask=original)


CHECK = Check(
    name=NAME,
    title="tokens that are masked or rejected weigh nothing and count as in the policy",
    tests="T8",
    space=space,
    judge=partial(judge_spread, NAME, CODE),
    project=with_holes,
    needs=(RIGHT_FORMULA,),
    alone_after=(LAYOUT,),
    not_applicable="judged by an oracle only: what is masked may still be content",
    max_examples=30,
    max_stored=20,
)
