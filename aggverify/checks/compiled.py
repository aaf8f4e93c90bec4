"""T14: what the candidate gives to torch.compile does compiled what it does eagerly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from aggverify.checks.base import Check, Finding
from aggverify.checks.judging import is_finite, judge_elsewhere
from aggverify.checks.spaces import small
from aggverify.errors import NotJudged
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import COMPILED, RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.oracles import Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step

NAME = "compiled_as_eager"
CODE = "AGV409"


def _space(subject: Subject) -> Space | None:
    """Up to two ranks; None where nothing is compiled, or everything."""
    if not subject.found.compiles or subject.claim.compiled:
        return None
    return small(subject, max_world=min(2, subject.max_world))


def _handful(subject: Subject) -> Iterator[Case]:
    """One rank in two shapes, so that the second is compiled for any; then two of a size each."""
    few, more = parse_step("1/11 2/1; 2/101"), parse_step("2/1011 1/111; 1/1101 3/11")
    layouts = (
        Layout((((0, 1),), ((2,),))),
        Layout((((0, 1, 2),),), cp_size=2),
    )
    yield _case(few, Layout.trivial(3))
    yield _case(more, Layout.trivial(4))
    yield replace(_case(more, Layout.trivial(4)), dtype="float32")
    for layout in layouts:
        yield _case(few, layout)


def _case(step: Step, layout: Layout) -> Case:
    losses = tuple(float(t % 5 - 2) / 4 for t in range(step.num_response_tokens))
    return Case(step, layout, losses)


def _judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Compare with the eager execution of the same step, each with its own roundings."""
    eager, compiled = executions
    if not is_finite(eager):
        return None
    fault, reference = compiled.failure, "the same code run eagerly"
    if fault is not None and fault.error is not None and fault.error.breach == NO_COMPILER:
        raise NotJudged(fault.error.message)
    found = Finding(CODE, NAME, "", compiled.case, subject.mode, reference=reference)
    off = judge_elsewhere(found, subject, eager, compiled, "when compiled")
    # Running sums excuse no difference: the compiled code has the same ones.
    return None if off is None else replace(off, limit=Fraction(0))


NO_COMPILER = "no compiler"

CHECK = Check(
    name=NAME,
    title="compiled by torch.compile the weights are those of the code run eagerly",
    tests="T14",
    space=_space,
    variants=lambda case: (case, RunSpec(case, where=COMPILED)),
    judge=_judge,
    only=_handful,
    not_applicable="nothing was given to torch.compile, or all of it is compiled",
    waits_for="torch.compile compiles a few steps, on 1 rank and on 2",
    as_found=True,
)
