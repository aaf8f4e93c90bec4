"""The same step twice gives the same bits, whatever was run before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, chain, islice, product
from typing import TypeGuard

import numpy as np

from aggverify.checks.base import Check, Finding
from aggverify.checks.comparison import LOW
from aggverify.checks.logged_keys import numbers_text
from aggverify.checks.logs import OBJECTIVE
from aggverify.checks.spaces import small
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import hard_cases
from aggverify.generation.shapes import LONG_STEP, levels
from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.world import Fault

REPEATS = "repeats_bit_for_bit"
REMEMBERS = "keeps_nothing_between_steps"
VARIES, DEPENDS, FLAKY = "AGV407", "AGV408", "AGV414"


def _space(subject: Subject) -> Space:
    return small(subject, max_world=min(_RANKS, subject.max_world))


def _repeated(case: Case) -> tuple[RunSpec, ...]:
    """Fresh ranks first: what a reducer may remember of this very step is then the same."""
    return RunSpec(case, fresh=True), RunSpec(case, before=(case,))


def _remembered(case: Case) -> tuple[RunSpec, ...]:
    return RunSpec(case, fresh=True), *(spec for _, spec in _pasts(case))


def _pasts(case: Case) -> Iterator[tuple[str, RunSpec]]:
    """Yield what ranks may have run before, in words and as a run spec."""
    if case.step == LONG_STEP:
        small = Case(_PLAIN, Layout.trivial(len(_PLAIN.samples)), _values(_PLAIN))
        for dtype, (which, first) in product(LOW, (("", small), ("the same ", case))):
            words = f"when the very first step was {which}in {dtype}"
            yield words, RunSpec(case, before=(replace(first, dtype=dtype),), fresh=True)
        return
    others = _other_steps(case)
    yield "after other steps", RunSpec(case, before=others)
    yield "when the very first steps were others", RunSpec(case, before=others, fresh=True)
    for other in _regrouped(case):
        words = "when the very first step was the same in another number of micro-batches"
        yield words, RunSpec(case, before=(other,), fresh=True)
    if case.step == _PLAIN:
        yield f"{OFTEN} times before", RunSpec(case, before=(case,) * OFTEN)


def _regrouped(case: Case) -> tuple[Case, ...]:
    """Return the step with a rank's samples in one micro-batch, or in two where they are in one.

    Nothing else of a trainer's layout changes from one step to the next. Empty where a rank's only
    sample cannot be split.
    """
    cells = [tuple(chain.from_iterable(rank)) for rank in case.layout.micro_batches]
    one = tuple((cell,) for cell in cells)
    two = tuple((cell[: len(cell) // 2], cell[len(cell) // 2 :]) for cell in cells)
    split = case.layout.num_microbatches > 1
    if not split and min(map(len, cells)) < 2:
        return ()
    return (replace(case, layout=replace(case.layout, micro_batches=one if split else two)),)


def _other_steps(case: Case) -> tuple[Case, ...]:
    """Return steps that share much with this one, so that only the right key distinguishes them.

    They have other lengths, masks (with the same counts, too), groups, another number of samples
    where one rank has them all. First and last differ in all counts: they are what a reducer with a
    single memory holds.
    """
    samples = case.step.samples
    flipped = [Sample(s.prompt_length, _flipped(s.loss_mask), s.rollout, s.group) for s in samples]
    turned = [replace(s, loss_mask=s.loss_mask[1:] + s.loss_mask[:1]) for s in samples]
    split = case.layout.num_microbatches > 1
    last = {i for rank in case.layout.micro_batches for i in rank[-1]} if split else set()
    ended = [
        Sample(s.prompt_length, bytes(s.response_length), s.rollout, s.group) if i in last else s
        for i, s in enumerate(samples)
    ]
    together = [Sample(s.prompt_length, s.loss_mask, 0, 0) for s in samples]
    apart = [Sample(s.prompt_length, s.loss_mask, i, i) for i, s in enumerate(samples)]
    longer, longest = (
        [Sample(s.prompt_length, (*s.loss_mask, *more), s.rollout, s.group) for s in samples]
        for more in ((1,), (0, 1, 1))
    )
    steps = [Step(tuple(s)) for s in (longer, turned, flipped, ended, together, apart, longest)]
    found = [Case(step, case.layout, _values(step), case.dtype) for step in steps]
    if case.layout.is_trivial:
        larger = Step((*apart, Sample(2, (1, 1, 0, 1), len(apart), len(apart))))
        layout = Layout.trivial(len(larger.samples))
        found.append(Case(larger, layout, _values(larger), case.dtype))
    return tuple(other for other in found if other.step != case.step)


def _flipped(mask: Sequence[int]) -> tuple[int, ...]:
    """Another mask of the same length and, where that is possible, of another count."""
    first, *others = mask
    return (1 - first, *others)


def _values(step: Step) -> tuple[float, ...]:
    return tuple((5 * t + 2) / 16 for t in range(step.num_response_tokens))


def _judge_repeated(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    first, again = executions
    if (finding := flaky(subject, REPEATS, executions)) is not None:
        return finding
    how = _difference(first, again)
    if how is None:
        return None
    message = f"the same step run again by the same ranks: {how}"
    signs = (EARLIER,) if _one_part(first, again) else ()
    return Finding(VARIES, REPEATS, message, first.case, subject.mode, signs=signs)


def flaky(subject: Subject, check: str, executions: Sequence[Execution]) -> Finding | None:
    """Return the finding where some runs of one step pass and others raise or end a rank.

    Not where they only take too long, or were ended from outside, which a busy machine does.
    """
    failed = [(e.case, e.failure) for e in executions if is_flaky(e.failure)]
    if not failed or all(e.weights is None for e in executions):
        return None
    case, fault = failed[0]
    finding = Finding(FLAKY, check, fault.message, case, subject.mode, fault=fault)
    return flaky_finding(finding, 1, len(executions))


def is_flaky(fault: Fault | None) -> TypeGuard[Fault]:
    """Whether a failure that is gone when the step is run again is the reducer's all the same."""
    return fault is not None and fault.kind not in ("runaway", "blocked") and not fault.ended


def flaky_finding(finding: Finding, failed: int, runs: int) -> Finding:
    """Return the finding of a failure that does not always come, with how often it did."""
    message = f"{failed} of {runs} runs of this step failed: {finding.message}"
    return replace(finding, code=FLAKY, message=message)


EARLIER = "a count over earlier steps"


def _one_part(first: Execution, again: Execution) -> bool:
    """Whether all weights are one half, one third, ... of before: a count has added the step up."""
    if first.weights is None or again.weights is None or not again.weights.any():
        return False
    times = round(float(abs(first.weights).sum() / abs(again.weights).sum()))
    return times > 1 and np.allclose(again.weights * times, first.weights, rtol=_ROUNDED, atol=0)


def _judge_remembered(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    fresh, *later = executions
    for (words, _), execution in zip(_pasts(fresh.case), later, strict=True):
        how = _difference(fresh, execution)
        if how is not None:
            message = f"the same step {words}: {how}"
            signs = (EARLIER,) if _adds_up(fresh, *later[:2]) else ()
            return Finding(DEPENDS, REMEMBERS, message, fresh.case, subject.mode, signs=signs)
    return None


_COUNTS: tuple[Callable[[Step], int], ...] = (
    lambda step: step.num_unmasked,
    lambda step: len(step.samples),
    lambda step: step.num_rollouts,
    lambda step: step.num_groups,
)


def _adds_up(fresh: Execution, used: Execution, new: Execution) -> bool:
    """Whether weights are divided by a count over this and earlier steps.

    They are then the fresh ones times this step's count over the sum of it and the last few, or
    over the mean of it and the last. ``used`` ranks had run other steps before these, ``new`` ones
    none. A ratio that a count of the first or the last step alone also gives is no evidence.
    """
    steps = [fresh.case.step, *(case.step for case in reversed(_other_steps(fresh.case)))]
    counts = [[count(step) for step in steps] for count in _COUNTS]
    by_last = {Fraction(c[0], c[1]) for c in counts if c[1]} | {Fraction(1)}
    by_one = by_last | {Fraction(c[0], c[-1]) for c in counts if c[-1]}
    for this, last, *others in counts:
        if not this:
            continue  # it divides nothing
        sums = accumulate(others, initial=this + last)
        parts = {Fraction(this, by) for by in sums} - by_one
        if any(_times(new, fresh, part) for part in parts):
            return True
        mean = Fraction(2 * this, this + last)
        if mean not in by_last and all(_times(after, fresh, mean) for after in (used, new)):
            return True
    return False


def _times(after: Execution, fresh: Execution, part: Fraction) -> bool:
    if after.weights is None or fresh.weights is None:
        return False
    return np.allclose(after.weights, fresh.weights * float(part), rtol=_ROUNDED, atol=0)


_ROUNDED = 2.0**-20
"""Counts of so few tokens differ by more, and float32 by less."""


def _difference(one: Execution, two: Execution) -> str | None:
    """Return the first bit that differs.

    None also when either did not finish, which other checks report.
    """
    if one.weights is None or two.weights is None:
        return None
    same = (one.weights == two.weights) | (np.isnan(one.weights) & np.isnan(two.weights))
    if not same.all():
        token = int(np.flatnonzero(~same)[0])
        return (
            f"the weight of token {token} was {float(one.weights[token])!r}, "
            f"is {float(two.weights[token])!r}"
        )
    pairs = zip(one.local_losses, two.local_losses, strict=True)
    for rank, (was, now) in enumerate(pairs):
        for a, b in zip(was, now, strict=True):
            if a != b and not (a != a and b != b):
                return f"the loss on rank {rank} was {a!r}, is {b!r}"
    logged = [
        [dict(log).get(OBJECTIVE) for logs in each.logs for log in logs if isinstance(log, tuple)]
        for each in (one, two)
    ]
    for was, now in zip(*logged, strict=False):
        if was != now:
            return f"log[{OBJECTIVE!r}] was {numbers_text(was)}, is {numbers_text(now)}"
    return None


def _folded(case: Case) -> Case:
    """On two ranks at most."""
    return case if case.layout.world_size <= _RANKS else case.trivial


def _with_holes(case: Case) -> Case:
    """Put a hole in every longer response: only then is a turned mask another one."""
    samples = (
        replace(s, loss_mask=_holed(s.loss_mask)) if s.response_length > _SHORT else s
        for s in case.step.samples
    )
    return _folded(replace(case, step=Step(tuple(samples))))


def _holed(mask: bytes) -> bytes:
    middle = len(mask) // 2
    return mask[:middle] + b"\0" + mask[middle + 1 :]


_RANKS, _SHORT = 2, 3
OFTEN = 64
"""More calls than a warm-up takes."""
_PLAIN = hard_cases()[0].step
"""The step that is run so often: one is enough."""
_FEW = 3
"""Hard cases that it begins with."""


def _stored(subject: Subject) -> Iterator[Case]:
    space = _space(subject)
    hard = (_with_holes(case) for case in hard_cases())
    yield from islice((case for case in hard if case in space), _FEW)
    long = Case(LONG_STEP, Layout.trivial(len(LONG_STEP.samples)), levels(LONG_STEP))
    if not subject.nonlinear and subject.keeps_promises(long):
        yield long


REPEAT = Check(
    name=REPEATS,
    title="the same step twice gives the same bits",
    space=_space,
    variants=_repeated,
    judge=_judge_repeated,
    project=_folded,
    max_examples=3,
    max_stored=3,
    of_weights=False,
)
STATE = Check(
    name=REMEMBERS,
    title="a step gives what it gives in ranks that have run nothing before",
    space=_space,
    variants=_remembered,
    judge=_judge_remembered,
    project=_with_holes,
    stored=_stored,
    max_examples=2,
    max_stored=_FEW,
    on_branches=_with_holes,
)
