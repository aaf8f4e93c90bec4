"""A factor that is common to all tokens, named by what it equals in every observation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from aggverify.diagnosis.forms import Observation
from aggverify.subject import Subject

_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Factor:
    """Observed over expected weight: a name in sizes of the step and layout, and a sentence."""

    name: str
    sentence: str


def common_factor(subject: Subject, observations: Sequence[Observation]) -> Factor | None:
    """The named factor if, in every observation, all weights are off by one and the same."""
    ratios, sizes = [], []
    for o in observations:
        if o.expected is None:
            return None
        exact = np.array([float(w) for w in o.expected])
        keep = exact != 0
        if not keep.any():
            continue
        quotient = o.observed[keep] / exact[keep]
        if not np.isfinite(quotient).all() or np.ptp(quotient) > _TOLERANCE * abs(quotient[0]):
            return None
        ratios.append(float(quotient[0]))
        sizes.append(_sizes(o))
    if not ratios or all(abs(r - 1) <= _TOLERANCE for r in ratios):
        return None
    if max(ratios) - min(ratios) <= _TOLERANCE * abs(ratios[0]) and len(ratios) > 1:
        return _constant(subject, ratios[0])
    names = list(sizes[0])
    for exponents in _exponents(len(names)):
        values = [
            float(np.prod([float(s[n]) ** e for n, e in zip(names, exponents, strict=True)]))
            for s in sizes
        ]
        if all(abs(v - r) <= _TOLERANCE * v for v, r in zip(values, ratios, strict=True)):
            name = _name(names, exponents)
            return Factor(name, f"{name} times too large" if _grows(exponents) else f"x {name}")
    return None


def _sizes(observation: Observation) -> dict[str, int]:
    step, layout = observation.case.step, observation.case.layout
    return {
        "cp_size": layout.cp_size,
        "dp_size": layout.dp_size,
        "num_microbatches": layout.num_microbatches,
        "N": step.num_rollouts,
        "P": step.num_groups,
        "num_tokens": step.num_unmasked,
        "num_samples": len(step.samples),
    }


def _exponents(n: int) -> Iterator[tuple[int, ...]]:
    """Exponents of -1, 0 and 1, products of few sizes first."""
    found = product((0, 1, -1), repeat=n)
    return iter(sorted(found, key=lambda e: (sum(map(abs, e)), [-x for x in e])))


def _grows(exponents: tuple[int, ...]) -> bool:
    return all(e >= 0 for e in exponents)


def _name(names: Sequence[str], exponents: Sequence[int]) -> str:
    above = [n for n, e in zip(names, exponents, strict=True) if e > 0]
    below = [n for n, e in zip(names, exponents, strict=True) if e < 0]
    top = "*".join(above) or "1"
    if not below:
        return top
    bottom = "*".join(below)
    return f"{top}/({bottom})" if len(below) > 1 else f"{top}/{bottom}"


def _constant(subject: Subject, value: float) -> Factor:
    simple = Fraction(value).limit_denominator(10**6)
    if subject.mode == "constant" and subject.divisor is not None:
        used = subject.divisor / value
        return Factor(
            str(simple),
            f"divides by {used:.6g} where the divisor is {subject.divisor:g}",
        )
    return Factor(str(simple), f"a constant factor of {simple}")
