"""Ranks that are launched, each with its own interpreter, give what forks of one give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from aggverify.checks.base import Check, Finding
from aggverify.checks.judging import is_finite, judge_elsewhere, loss_text
from aggverify.checks.logs import objective
from aggverify.checks.spaces import small
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import LAUNCHED, RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.oracles import Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step

NAME = "launched_as_forked"
CODE = "AGV412"


def _space(subject: Subject) -> Space | None:
    """Two of each size; None for code that reads nothing a launch sets, but in a thorough run."""
    if not subject.found.surroundings and not subject.claim.budget.thorough:
        return None
    found = small(subject, dtypes=("float64",))
    return found if max(found.max_dp, found.max_cp) > 1 else None


def _handful(subject: Subject) -> Iterator[Case]:
    """Two steps on two ranks, which are all that is launched: each imports torch for itself."""
    for text in (_FEW, _MANY):
        yield from _laid_out(parse_step(text), small(subject))


_FEW = "2/110111011 1/111; 3/1 1/1101111; 2/11111011111 4/11; 1/111 2/10111"
_MANY = "; ".join(f"{1 + n % 4}/{'1' * (n + 1)} 2/{'1' * (n // 2 + 1)}" for n in range(16))
"""So many prompts that a set of their names has the same order in two processes by no chance."""


def _laid_out(step: Step, space: Space) -> Iterator[Case]:
    """Yield the step on two data-parallel ranks, and on two context-parallel ones."""
    losses = tuple(float(t % 7 - 2) / 4 for t in range(step.num_response_tokens))
    whole = tuple(range(len(step.samples)))
    for dp, cp in ((2, 1), (1, 2)):
        if dp <= space.max_dp and cp <= space.max_cp:
            size = len(whole) // dp
            rows = [whole[n * size : (n + 1) * size] for n in range(dp)]
            yield Case(step, Layout(tuple((row,) for row in rows), cp), losses)
            if space.max_microbatches > 1:
                halves = ((row[: size // 2], row[size // 2 :]) for row in rows)
                yield Case(step, Layout(tuple(halves), cp), losses)


def _judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Compare, each with its own roundings: launched ranks may have another number of threads."""
    forked, launched = executions
    if forked.weights is None or not is_finite(forked):
        return None
    reference = "ranks forked from one process"
    found = Finding(CODE, NAME, "", launched.case, subject.mode, reference=reference)
    off = judge_elsewhere(found, subject, forked, launched, "in launched ranks")
    if off is not None:
        return off
    wanted = objective(subject, forked)
    if wanted is None or forked.value is None or not wanted.is_met(forked.value):
        return None
    if launched.value is not None and wanted.is_met(launched.value):
        return None
    now = loss_text(launched.value)
    message = f"only in launched ranks: the loss is {now}, not {float(forked.value)!r}"
    return replace(found, message=message)


CHECK = Check(
    name=NAME,
    title="ranks that are launched as trainers launch them give what forked ones give",
    space=_space,
    variants=lambda case: (RunSpec(case, alone=True), RunSpec(case, where=LAUNCHED)),
    judge=_judge,
    only=_handful,
    not_applicable="its code asks nothing that a launch decides",
    waits_for="ranks are launched, each with its own interpreter",
    as_found=True,
    last=True,
)
