"""A recorded step's weights, and what they are diagnosed by: forms of the tool's own, and bugs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, zip_longest

import numpy as np

from aggverify.audit.records import Array
from aggverify.audit.steps import RecordedStep
from aggverify.checks import Finding
from aggverify.diagnosis import Diagnosis, WeightObservation, diagnose
from aggverify.execution.subject import Subject
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case

_BETWEEN = 4
"""Masked samples, as many as a formula has in a row at most (``diagnosis.terms``)."""
_LARGE = 50_000
"""Tokens of the steps that forms are fitted to."""


@dataclass(frozen=True, slots=True)
class StepWeights:
    """One step's weights in the update, with the mode's; an entry for each response token."""

    step: RecordedStep
    observed: Array
    expected: tuple[Fraction, ...]
    odd: Array
    """Whether another property is about the token."""
    unknown: Array
    """Whether the token is unmasked, and its weight could not be read off."""

    @property
    def left_out(self) -> Array:
        """Unmasked tokens that are not judged by their weight."""
        return (self.odd | self.unknown) & mask_of(self.step)

    @property
    def judged(self) -> Array:
        """Observed weights, but for odd and unknown tokens the mode's, so that none is wrong."""
        exact = np.array([float(w) for w in self.expected])
        return np.where(self.odd | self.unknown, exact, self.observed)


def mask_of(step: RecordedStep) -> Array:
    """Per response token of the case: whether it is unmasked."""
    flat = b"".join(s.loss_mask for s in step.case.step.samples)
    return np.frombuffer(flat, dtype=np.uint8).astype(bool)


def owners(step: RecordedStep) -> Array:
    """Per response token of the case: its sample."""
    lengths = [s.response_length for s in step.case.step.samples]
    return np.repeat(np.arange(len(lengths)), lengths)


def explained(subject: Subject, finding: Finding, steps: Sequence[StepWeights]) -> Diagnosis | None:
    """Return what all steps' weights are instead, as far as any formula gives them."""
    small = [w for w in steps if w.step.case.step.num_response_tokens <= _LARGE]
    seen = [_interleaved(w.step.case, _filled(w), w.expected) for w in small]
    own = replace(finding, observed=None)  # what is unknown in it has no observed weight
    tiers = [list(map(_spread_out, seen)), seen]
    return diagnose(subject.knowing(trust_formula=True), own, tiers) if seen else None


def _spread_out(seen: WeightObservation) -> WeightObservation:
    """Put masked samples between all.

    Where every micro-batch has as many samples, a formula of so many in a row is not taken for one
    of micro-batches.
    """
    case, width = seen.case, _BETWEEN + 1
    samples = case.step.samples
    masked = [
        Sample(1, b"\0", len(samples) * width + n, len(samples) * width + n)
        for n in range(len(samples) * _BETWEEN)
    ]
    parts = [(s, *masked[n * _BETWEEN :][:_BETWEEN]) for n, s in enumerate(samples)]
    micro_batches = tuple(
        tuple(tuple(n * width + m for n in cell for m in range(width)) for cell in rank)
        for rank in case.layout.micro_batches
    )
    step = Step(tuple(chain.from_iterable(parts)))
    at = np.concatenate(
        [step.offsets[n * width] + np.arange(s.response_length) for n, s in enumerate(samples)]
    )
    weights = np.zeros(step.num_response_tokens)
    weights[at] = seen.observed
    expected = [Fraction(0)] * step.num_response_tokens
    for place, weight in zip(at.tolist(), seen.expected or (), strict=False):
        expected[place] = weight
    layout = replace(case.layout, micro_batches=micro_batches)
    spread = Case(step, layout, (1.0,) * step.num_response_tokens, case.dtype)
    return WeightObservation(spread, weights, tuple(expected))


def _interleaved(case: Case, weights: Array, expected: Sequence[Fraction]) -> WeightObservation:
    """Order samples by taking one of every micro-batch in turn: records have no order of a step."""
    cells = [members for _, _, members in case.layout.cells()]
    rows = zip_longest(*cells)
    order = [n for row in rows for n in row if n is not None]
    new = {n: i for i, n in enumerate(order)}
    layout = replace(
        case.layout,
        micro_batches=tuple(
            tuple(tuple(new[n] for n in cell) for cell in rank)
            for rank in case.layout.micro_batches
        ),
    )
    step = Step(tuple(case.step.samples[n] for n in order))
    lengths = [s.response_length for s in case.step.samples]
    at = np.concatenate([case.step.offsets[n] + np.arange(lengths[n]) for n in order])
    return WeightObservation(
        Case(step, layout, case.losses, case.dtype),
        weights[at],
        tuple(expected[i] for i in at.tolist()),
    )


def _filled(one: StepWeights) -> Array:
    """Return the weights, with unknown ones off by the median factor of their micro-batch."""
    if not (one.unknown | one.odd).any():
        return one.observed
    exact = np.array([float(w) for w in one.expected])
    known = ~(one.unknown | one.odd) & (exact != 0)
    ratio = np.divide(one.observed, exact, out=np.ones_like(exact), where=known)
    found, owner = one.judged.copy(), owners(one.step)
    cells = {n: c for c, (_, _, cell) in enumerate(one.step.case.layout.cells()) for n in cell}
    cell = np.array([cells[int(n)] for n in owner])
    for c in set(cell.tolist()):
        mine = (cell == c) & known
        if mine.any():
            rest = (cell == c) & one.unknown
            found[rest] = exact[rest] * np.median(ratio[mine])
    return found
