"""Every small step on every small layout: a statement that random testing cannot make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from aggverify.checks import empty, formula
from aggverify.checks.base import Check, Finding
from aggverify.checks.judging import judge_formula, judge_spread
from aggverify.checks.spaces import cp_kinds, spread
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.enumeration import Box, every_case
from aggverify.generation.space import Space
from aggverify.steps.case import Case

NAME = "holds_on_every_small_step"
CODE = "AGV204"


def boxes(subject: Subject) -> tuple[Box, ...]:
    """Return what is enumerated for these claims."""
    kinds = cp_kinds(subject)
    ranks = min(4, subject.max_world)
    plain = Box(samples=3, tokens=3, ranks=ranks, cp_kinds=kinds[:1])
    wide = replace(plain, tokens=2, cp_kinds=kinds, fan_out=True)
    return (plain, wide) if "fan-out" in subject.features or len(kinds) > 1 else (plain,)


def space(subject: Subject) -> Space | None:
    """All layouts the subject can be given, fully masked units included.

    None where a micro-batch alone has more samples than are enumerated.
    """
    if subject.rows is not None and subject.rows > min(box.samples for box in boxes(subject)):
        return None
    return spread(subject, min_units=1, empty_samples=True)


def every(subject: Subject) -> Iterator[Case]:
    """All cases of all boxes; those of the plain box are not repeated."""
    plain, *wider = boxes(subject)
    yield from every_case(plain)
    for box in wider:
        for case in every_case(box):
            fan_out = len(case.step.samples) > case.step.num_rollouts
            if fan_out or (case.layout.cp_size > 1 and case.layout.cp_kind != "zigzag"):
                yield case


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """As the check that this step belongs to."""
    return judge_any(NAME, CODE, subject, executions)


def judge_any(
    name: str, code: str, subject: Subject, executions: Sequence[Execution]
) -> Finding | None:
    """As the check that a step belongs to: masked units, the formula, or the layout (``code``)."""
    laid_out = executions[-1].case
    if any(not s.num_unmasked for s in laid_out.step.samples):
        found = empty.judge(subject, executions)
        return None if found is None else replace(found, check=name)
    for execution in executions:
        if execution.case.layout.is_trivial:
            found = judge_formula(name, formula.CODES, subject, execution)
            if found is not None:
                return found
    if laid_out.layout.is_trivial:
        return None
    return judge_spread(name, code, subject, executions)


def established(subject: Subject, cases: int) -> str:
    """Return what a full pass proves."""
    listed = "; ".join(map(str, boxes(subject)))
    return (
        f"verified for all {cases:,} steps and layouts of {listed} (prompts of one token, float64, "
        f"one set of losses; up to the order of samples, micro-batches and ranks)"
    )


CHECK = Check(
    name=NAME,
    title="every small step on every small layout",
    space=space,
    variants=empty.variants,
    judge=judge,
    only=every,
    thorough=True,
    last=True,
    linear_only=True,
    control_first=True,
    establishes=established,
)
