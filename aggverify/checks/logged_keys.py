"""Every logged key that is made of the losses, once merged, is the same in every layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from aggverify.checks import merged_logs
from aggverify.checks.base import Finding
from aggverify.checks.comparison import lowest_precision
from aggverify.execution.executed import Execution, copies
from aggverify.execution.subject import Subject
from aggverify.oracles.bounds import PRECISIONS, scalar_bound
from aggverify.steps.case import Case
from aggverify.steps.layouts import token_owner

CODE = "AGV513"
MEAN_OF_MEANS = "each one's own mean, all with one weight"
WHOLE_COUNTS = "counts of whole samples from every one of their ranks"
Numbers = Sequence[Sequence[tuple[float, ...]]]
"""Of a key: one number or two, per rank and micro-batch."""


def variants(case: Case) -> tuple[Case, ...]:
    """One rank, the layout, and one rank with other losses.

    All of one sign: no sum of them is smaller than what is added.
    """
    some, others = (
        tuple(sign * ((7 * t) % 11 + 1) / 16 for t in range(len(case.losses))) for sign in (1, -2)
    )
    mine = case.with_losses(some)
    return mine.trivial, mine, case.with_losses(others).trivial


def judge(
    check: str, subject: Subject, case: Case, executions: Sequence[Execution]
) -> Finding | None:
    """Compare what is merged of one rank's numbers with what is merged of the layout's.

    Keys that do not change with the losses are not judged: they may describe the layout. Nor are
    keys that are equal everywhere: they may be of the whole step already. ``case``: the one whose
    ``variants`` were run.
    """
    own = merged_logs.applies(subject)
    one, spread, other = map(_merged_by_its_own if own else numbers_of, executions)
    for key, alone in one.items():
        if key not in spread or alone == other.get(key):
            continue
        if not own and _all_equal(spread[key]):
            continue
        was = merged(subject, executions[0], key, alone)
        now = merged(subject, executions[1], key, spread[key])
        if was is None or (now is not None and now.is_near(was)):
            continue
        message = (
            f"log[{key!r}] is {'not finite' if now is None else repr(float(now.value))}, merged, "
            f"and {float(was.value)!r} on one rank"
        )
        signs = () if own else _signs(subject, executions[1], key, spread[key], was)
        return Finding(CODE, check, message, case, subject.mode, signs=signs)
    return None


def _signs(
    subject: Subject, ran: Execution, key: str, numbers: Numbers, was: MergedKey
) -> tuple[str, ...]:
    """Return why numbers merge into something else than one rank logs, if that is known.

    A sum may come with a count of whole samples from each of their context-parallel ranks: divided
    by these it merges rightly. Or each rank logs its own mean of a micro-batch: weighed by the
    tokens or samples of each, they merge rightly.
    """
    pairs = [n for each in numbers for n in each if len(n) > 1]
    if pairs and ran.case.layout.cp_size > 1:
        shared = [[(n[0], n[1] / ran.case.layout.cp_size) for n in each] for each in numbers]
        now = merged(subject, ran, key, shared)
        if now is not None and now.is_near(was):
            one = all(count == 1 for _, count in pairs)  # of one token it may be either
            return () if one else (WHOLE_COUNTS,)
    if any(count != 1 for _, count in pairs):
        return ()
    owners, layout = token_owner(ran.case.step, ran.case.layout), ran.case.layout
    mask = b"".join(sample.loss_mask for sample in ran.case.step.samples)
    tokens = Counter(owner for owner, bit in zip(owners, mask, strict=True) if bit)
    samples = {(d, c, k): len(members) for d, k, members in layout.cells()
               for c in range(layout.cp_size)}  # fmt: skip
    for counts in (tokens, samples):
        share = len(samples) / (sum(counts.values()) or 1)
        weighed = [
            [
                (n[0] * counts.get((*divmod(rank, layout.cp_size), k), 0) * share, *n[1:])
                for k, n in enumerate(each)
            ]
            for rank, each in enumerate(numbers)
        ]
        now = merged(subject, ran, key, weighed)
        if now is not None and now.is_near(was):
            return (MEAN_OF_MEANS,)
    return ()


def numbers_of(ran: Execution) -> Mapping[str, Numbers]:
    """Keys with their numbers; none where logs have faults or differ, which is reported first."""
    read = [[dict(log) for log in logs if isinstance(log, tuple)] for logs in ran.logs]
    first = next((log for logs in read for log in logs), {})
    if any(log.keys() != first.keys() for logs in read for log in logs):
        return {}
    if any(len(some) != len(logs) for some, logs in zip(read, ran.logs, strict=True)):
        return {}
    return {key: [[log[key] for log in logs] for logs in read] for key in first}


def numbers_text(numbers: tuple[float, ...] | None) -> str:
    """Return a key's numbers as messages have them; None for a key that is not logged."""
    return "left out" if numbers is None else " and ".join(map(repr, numbers))


def _merged_by_its_own(ran: Execution) -> Mapping[str, Numbers]:
    """Return what the trainer's own function merged: one number per key."""
    return {key: [[numbers]] for key, numbers in merged_logs.merged(ran).items()}


def _all_equal(numbers: Numbers) -> bool:
    flat = [n for rank in numbers for n in rank]
    return len(flat) > 1 and len(set(flat)) == 1


@dataclass(frozen=True, slots=True)
class MergedKey:
    """A key's value, and how far rounding may have moved it."""

    value: Fraction
    bound: Fraction

    def is_near(self, other: MergedKey) -> bool:
        """Whether rounding explains what they differ by."""
        return abs(self.value - other.value) <= self.bound + other.bound


def merged(subject: Subject, ran: Execution, key: str, numbers: Numbers) -> MergedKey | None:
    """Merge numbers of a key; None if not finite.

    A scalar is reduced as the loss is, a pair is a sum over a count.
    """
    flat = [n for rank in numbers for n in rank]
    if not np.isfinite(flat).all():
        return None
    if merged_logs.applies(subject):
        value, magnitude = Fraction(flat[0][0]), abs(Fraction(flat[0][0]))
    elif len(flat[0]) == 1:

        def reduced(of: Callable[[float], float]) -> Fraction | None:
            local = [[of(n[0]) for n in rank] for rank in numbers]
            return ran.scalar(subject, copies(local, ran.case, 0))

        both = reduced(float), reduced(abs)
        assert both[0] is not None and both[1] is not None
        value, magnitude = both[0], both[1]
    else:
        count = sum(Fraction(n[1]) for n in flat)
        value, magnitude = (
            sum((Fraction(of(n[0])) for n in flat), Fraction(0)) / (count or 1)
            for of in (float, abs)
        )
    # Logs are usually kept in float32 at most, and counts in the dtype of the losses.
    lower = min(lowest_precision(subject, ran.case), "float32", key=lambda name: PRECISIONS[name].p)
    additions = ran.case.step.num_response_tokens + len(flat)
    roundings = 2 * subject.roundings_on(ran.case.step)
    bound = scalar_bound(abs(magnitude), additions, roundings, PRECISIONS[lower])
    return MergedKey(value, bound)
