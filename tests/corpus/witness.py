"""A step on which a wrong reducer is wrong, and how that is seen: without any search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from aggverify.api.observation import observation
from aggverify.execution.executed import Execution, copies
from aggverify.execution.executor import Executor
from aggverify.execution.run_spec import RunSpec, Where
from aggverify.execution.subject import Subject
from aggverify.oracles import Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

CLOSE, LOOSE = Fraction(1, 10**9), Fraction(1, 10**3)
"""Of the sum of all losses, in float64 and in other dtypes; weights have their proven bound."""


@dataclass(frozen=True, slots=True)
class Witness:
    """One step as text, its layout, and what else it takes; everything else is as usual."""

    step: str
    layout: str = ""
    """Micro-batches as text; one of all samples where there is none."""
    cp: int = 1
    kind: CpKind = "zigzag"
    dtype: str = "float64"
    rollouts: tuple[int, ...] = ()
    """Rollout ids of the samples, where they are not 0, 1, 2."""
    groups: tuple[int, ...] = ()
    losses: tuple[float, ...] = ()
    """Repeated over the step's tokens."""
    before: tuple[Witness, ...] = ()
    """Steps that the same ranks run first."""
    scale: float = 1.0
    under: str = ""
    where: Where = ""
    term: int | None = None
    watch: bool = False
    rejected: bool = False
    """Whether its masked tokens were rejected after the fact: no text says so."""

    @property
    def case(self) -> Case:
        step = parse_step(self.step)
        samples = list(step.samples)
        for i, name in enumerate(self.rollouts):
            samples[i] = replace(samples[i], rollout=name)
        for i, name in enumerate(self.groups):
            samples[i] = replace(samples[i], group=name)
        if self.rejected:
            samples = [replace(s, original_mask=b"\1" * len(s.loss_mask)) for s in samples]
        step = Step(tuple(samples))
        cells = parse_micro_batches(self.layout) if self.layout else (_all(step),)
        losses = self.losses or tuple(1 + n / 8 for n in range(7))
        flat = [losses[n % len(losses)] for n in range(step.num_response_tokens)]
        return Case(step, Layout(cells, self.cp, self.kind), tuple(flat), self.dtype)

    @property
    def trial(self) -> RunSpec:
        return RunSpec(
            self.case,
            before=tuple(step.case for step in self.before),
            fresh=bool(self.before),
            watch=self.watch,
            scale=self.scale,
            under=self.under,
            where=self.where,
            term=self.term,
        )


def _all(step: Step) -> tuple[tuple[int, ...], ...]:
    return (tuple(range(len(step.samples))),)


def run(subject: Subject, laboratory: Executor, witnesses: Sequence[Witness]) -> list[str]:
    """Of each witness what is wrong on it, "" for nothing."""
    found = laboratory.run(subject, [witness.trial for witness in witnesses])
    pairs = zip(witnesses, found, strict=True)
    return [amiss(subject, execution, bool(witness.under)) for witness, execution in pairs]


def amiss(subject: Subject, execution: Execution, valued: bool = False) -> str:
    """What the execution says against the reducer: weights (unless ``valued``, as under no_grad
    there are none), loss, log or arguments."""
    seen = observation(subject, execution)
    if seen.fault is not None:
        return f"fault: {seen.fault.message}"
    if execution.changed:
        return f"changes {', '.join(execution.changed)}"
    if seen.worst is not None and not valued:
        return f"weight of token {seen.worst}"
    wanted = seen.expected_value
    assert wanted is not None
    close = CLOSE if execution.case.dtype == "float64" else LOOSE
    scale = sum((abs(Fraction(loss)) for loss in execution.case.losses), Fraction(1))
    if not _is(seen.value, wanted, close * scale):
        return f"loss {seen.value}, expected {wanted}"
    logged = _logged(subject, execution)
    if logged is not None and not _is(logged, wanted, close * scale):
        return f"logged loss {logged}, expected {wanted}"
    return ""


def _is(value: Fraction | None, wanted: Fraction, within: Fraction) -> bool:
    return value is not None and abs(value - wanted) <= within


def _logged(subject: Subject, execution: Execution) -> Fraction | None:
    """The logged loss: pairs added up, then divided; scalars reduced as losses are."""
    ranks = [
        [dict(log)["loss"] for log in rank if log is not None and not isinstance(log, str)]
        for rank in execution.logs
    ]
    found = [numbers for rank in ranks for numbers in rank]
    if not found:
        return None
    if len(found[0]) == 1:
        first = [[numbers[0] for numbers in rank] for rank in ranks]
        return execution.scalar(subject, copies(first, execution.case, 0))
    total, tokens = (sum((Fraction(n[i]) for n in found), Fraction(0)) for i in (0, 1))
    return total / tokens
