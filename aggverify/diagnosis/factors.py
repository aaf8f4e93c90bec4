"""A factor that is common to all tokens, named by what it equals in every observation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np

from aggverify.checks import Finding
from aggverify.diagnosis.observation import TOLERANCE, Array, WeightObservation
from aggverify.execution.subject import Subject
from aggverify.steps.case import Case

_ONE = Fraction(1)
_MAX_SIZES = 4
"""At most this many sizes in one factor."""


@dataclass(frozen=True, slots=True)
class Factor:
    """Observed over expected weight: a name in sizes of the step and layout, and a sentence."""

    name: str
    sentence: str
    constant: Fraction = Fraction(1)
    """A number in front of the sizes, for example a configured window."""
    sizes: tuple[tuple[str, int], ...] = ()
    """The sizes with their exponents."""

    @property
    def off(self) -> str:
        """How wrong that is, after "makes gradients"."""
        if not self.sizes:
            one = self.constant if self.constant > 1 else 1 / self.constant
            return f"{one} times too {'large' if self.constant > 1 else 'small'}"
        inverse = product_of_sizes([(n, -e) for n, e in self.sizes], 1 / self.constant)
        if inverse.constant.denominator == 1 and all(e > 0 for _, e in inverse.sizes):
            return f"{inverse.name} times too small"
        upward = self.constant.denominator == 1 and all(e > 0 for _, e in self.sizes)
        return f"{self.name} times {'too large' if upward else 'what they must be'}"


def common_factor(subject: Subject, observations: Sequence[WeightObservation]) -> Factor | None:
    """Return the named factor if, in every observation, all weights are off by one and the same."""
    ratios, used = [], []
    for o in observations:
        if o.expected is None:
            return None
        exact = o.exact
        keep = exact != 0
        if o.observed[~keep].any():
            return None
        if not keep.any():
            continue
        quotient = o.observed[keep] / exact[keep]
        if not np.isfinite(quotient).all() or np.ptp(quotient) > TOLERANCE * abs(quotient[0]):
            return None
        ratios.append(float(quotient[0]))
        used.append(o)
    return named_ratio(subject, used, ratios)


def named_ratio(
    subject: Subject, observations: Sequence[WeightObservation], ratios: Sequence[float]
) -> Factor | None:
    """Return the product of sizes, or the constant, that equals the ratio in every observation."""
    if not ratios or all(abs(r - 1) <= TOLERANCE for r in ratios) or min(ratios) <= 0:
        return None
    spread = max(ratios) - min(ratios)
    group = subject.group_size
    if group is not None and spread <= TOLERANCE and abs(ratios[0] * group - 1) <= TOLERANCE:
        # In groups of one size P/N is a constant, and would be named by its number.
        return product_of_sizes([("P", 1), ("N", -1)])
    if spread <= TOLERANCE * abs(ratios[0]) and (len(ratios) > 1 or not subject.has_oracle):
        return _constant(subject, ratios[0])
    sizes = [_sizes(o.case) for o in observations]
    names = tuple(sizes[0])
    logs = np.log([[float(s[n]) for n in names] for s in sizes])
    exponents, matrix = _exponents(len(names))
    difference = np.log(ratios) - matrix @ logs.T
    exact = np.abs(difference).max(axis=1) <= TOLERANCE
    scaled = np.ptp(difference, axis=1) <= TOLERANCE
    for fits in (exact, scaled if len(ratios) > 2 else exact):
        for row in np.flatnonzero(fits).tolist():
            constant = Fraction(float(np.exp(difference[row].mean()))).limit_denominator(64)
            if constant and abs(np.log(float(constant)) - difference[row].mean()) <= TOLERANCE:
                used = zip(names, exponents[row], strict=True)
                return _in_names(subject, [(n, e) for n, e in used if e], constant)
    return None


def gives(factor: Factor, subject: Subject, finding: Finding, expected: Sequence[Fraction]) -> bool:
    """Whether expected weight times factor is the finding's own weight.

    That is within its bound, or within a quarter of its error. ``expected``: the mode's weights, or
    those it is shown with.
    """
    if finding.observed is None or finding.token is None or finding.error is None:
        return True
    sizes = {"L": subject.divisor or 1.0, **_sizes(finding.case)}
    times = factor.constant
    for name, exponent in factor.sizes:
        size = Fraction(sizes[name])
        times = times * size if exponent > 0 else times / size
    off = abs(Fraction(finding.observed[finding.token]) - times * expected[finding.token])
    bound = (finding.bound or Fraction(0)) * max(times, _ONE)
    return off <= max(bound, finding.error / 4)


def _sizes(case: Case) -> dict[str, int]:
    step, layout = case.step, case.layout
    return {
        "cp_size": layout.cp_size,
        "dp_size": layout.dp_size,
        "num_microbatches": layout.num_microbatches,
        "N": step.num_rollouts,
        "P": step.num_groups,
        "num_tokens": max(step.num_unmasked, 1),
        "num_samples": len(step.samples),
        "max_len": max(s.response_length for s in step.samples),
    }


@lru_cache(maxsize=4)
def _exponents(n: int) -> tuple[list[tuple[int, ...]], Array]:
    """Exponents of -1, 0 and 1, products of few sizes first, then of the first names."""
    found = [e for e in product((0, 1, -1), repeat=n) if sum(map(abs, e)) <= _MAX_SIZES]
    found.sort(key=lambda e: (sum(map(abs, e)), [x == 0 for x in e], [-x for x in e]))
    return found, np.array(found, dtype=np.float64)


def _in_names(subject: Subject, sizes: list[tuple[str, int]], constant: Fraction) -> Factor:
    """Return a number that is the mode's L, or the G of N/(P*G), under that name."""
    divisor = subject.divisor if subject.mode == "constant" else None
    for exponent in (1, -1):
        if divisor and abs(float(constant) - divisor**exponent) <= TOLERANCE * float(constant):
            return product_of_sizes([("L", exponent), *sizes])
    found = product_of_sizes(sizes, constant)
    per_group = constant.denominator if ("N", 1) in sizes else constant.numerator
    grouped = sorted(n for n, _ in sizes) == ["N", "P"] and constant != 1
    if grouped and 1 in constant.as_integer_ratio():
        formula = (
            f"N/(P*G) with G = {per_group}" if ("N", 1) in sizes else f"P*G/N, G = {per_group}"
        )
        found = replace(found, sentence=f"{found.sentence}, that is {formula}")
    return found


def product_of_sizes(sizes: Sequence[tuple[str, int]], constant: Fraction = _ONE) -> Factor:
    """Return the factor that these sizes with their exponents make, with a number in front."""
    above = [n for n, e in sizes if e > 0]
    below = [n for n, e in sizes if e < 0]
    if constant.numerator != 1:
        above.insert(0, str(constant.numerator))
    if constant.denominator != 1:
        below.insert(0, str(constant.denominator))
    name = "*".join(above) or "1"
    if below:
        bottom = "*".join(below)
        name = f"{name}/({bottom})" if len(below) > 1 else f"{name}/{bottom}"
    sentence = f"{name} times too large" if not below else f"x {name}"
    return Factor(name, sentence, constant, tuple(sizes))


def _constant(subject: Subject, value: float) -> Factor:
    simple = Fraction(value).limit_denominator(10**6)
    if subject.mode == "constant" and subject.divisor is not None and value:
        used = subject.divisor / value
        sentence = f"divides by {used:.6g} where the divisor is {subject.divisor:g}"
        return Factor(str(simple), sentence, simple)
    return Factor(str(simple), f"a constant factor of {simple}", simple)
