"""Steps, losses, policies and numbers for the oracles' own tests, drawn without aggverify."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from fractions import Fraction
from typing import get_args, get_type_hints

from hypothesis import strategies as st

from aggverify.oracles import MODES, Policy, Sample, Step

HINTS = get_type_hints(Policy)
QUESTIONS = tuple(f.name for f in fields(Policy) if f.name != "group_size")
READINGS: Mapping[str, tuple[str, ...]] = {q: get_args(HINTS[q]) for q in QUESTIONS}

policies = st.builds(
    Policy,
    **{question: st.sampled_from(readings) for question, readings in READINGS.items()},
    group_size=st.integers(1, 4),
)

any_float = st.floats(allow_nan=False, allow_infinity=False)
awkward = st.sampled_from(
    (
        *(0.0, -0.0, 5e-324, -5e-324, 2.0**-1022, 1e-308, 1e308, -1e308, 1.7976931348623157e308),
        *(1.0, -1.0, 2.0**53, -(2.0**53), 1 + 2.0**-52, 2.0**960, -(2.0**961), 2.0**-600),
    )
)
floats = any_float | awkward | st.integers(-512, 512).map(lambda k: k / 256)


def step_of(text: str) -> Step:
    """``"110+11 1; 0"``: samples of a rollout joined by +, rollouts by blanks, groups by ;."""
    samples, rollout = [], 0
    for group, words in enumerate(text.split(";")):
        for word in words.split():
            for mask in word.split("+"):
                samples.append(Sample(1, tuple(map(int, mask)), rollout, group))
            rollout += 1
    return Step(tuple(samples))


@st.composite
def steps(draw: st.DrawFn, *, full: bool = False, rejected: bool = True) -> Step:
    """Up to six samples: fan-out rollouts, unequal groups, holes, empty units, zero lengths.

    ``full``: every sample has an unmasked token. ``rejected``: tokens may be lost to rejection.
    """
    samples = []
    for i in range(draw(st.integers(1, 6))):
        fan_out = i > 0 and draw(st.booleans())
        rollout = samples[-1].rollout if fan_out else i
        group = samples[-1].group if fan_out else draw(st.integers(0, i)) + 10
        original = draw(st.lists(st.integers(0, 1), max_size=6))
        if full:
            original.append(1)
        mask = original
        if rejected and not full and draw(st.booleans()):
            mask = [bit and draw(st.integers(0, 1)) for bit in original]
        samples.append(Sample(draw(st.integers(0, 3)), mask, rollout, group, original))
    return Step(tuple(samples))


def losses(step: Step) -> st.SearchStrategy[list[float]]:
    """One finite loss per response token; extremes and dyadic ones often."""
    n = step.num_response_tokens
    return st.lists(floats, min_size=n, max_size=n)


def divisor_for(mode: str) -> float | None:
    """A divisor where the mode takes one."""
    return 12.5 if MODES[mode].needs_divisor else None


def slow_sum(values: object) -> Fraction:
    """The sum by fractions.Fraction, one by one."""
    return sum((Fraction(float(x)) for x in values), Fraction(0))  # type: ignore[attr-defined]
