"""Recognises wrong weights that one factor explains, such as another step's count of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from aggverify.audit.records import Array
from aggverify.audit.steps import ParallelDims, RecordedStep
from aggverify.diagnosis import Diagnosis, KnownBug
from aggverify.diagnosis.observation import TOLERANCE

Wrong = tuple[RecordedStep, Array, Sequence[Fraction]]
"""A step, its weights and the mode's."""
_WINDOWS = 8
"""Optimizer steps of a generation batch at most."""
_TOGETHER = (
    "a generation batch that spans them: TRL #5619, #6024, ms-swift 4.6.0; or an optimizer step "
    "within the accumulation window"
)
_FIX = "count the tokens of the micro-batches that go into this optimizer step"


def other_counts(wrong: Sequence[Wrong], steps: Sequence[RecordedStep]) -> Diagnosis | None:
    """Return what wrong steps have in common, each off by one factor that gives a count."""
    tokens = {step.number: step.step.num_unmasked for step in steps}
    counts = {}
    for step, observed, expected in wrong:
        factor = _factor(observed, expected)
        if factor is None:
            return None
        counts[step.number] = tokens[step.number] / factor
    for sentence, seen, guesses in _hypotheses(tokens):
        foreseen = {n: guesses[n] for n in counts if n in guesses}
        near = (abs(counts[n] - guess) <= TOLERANCE * guess for n, guess in foreseen.items())
        if foreseen and any(guess != tokens[n] for n, guess in foreseen.items()) and all(near):
            root = (
                f"{sentence} ({', '.join(f'{g:g} for {tokens[n]}' for n, g in foreseen.items())})"
            )
            bug = KnownBug("other-step", sentence, seen, _FIX)
            return Diagnosis(root, None, bug, sentence)
    return None


def one_factor(wrong: Sequence[Wrong], ranks: ParallelDims) -> Diagnosis | None:
    """Return one number that every weight of every step is off by.

    Several sizes of this run, or none, are that number: steps of one layout do not show which. None
    where it is one size alone, which a formula can name.
    """
    factors = [_factor(observed, expected) for _, observed, expected in wrong]
    known = [f for f in factors if f is not None]
    if len(known) < len(factors) or max(known) - min(known) > TOLERANCE * max(known):
        return None
    number = Fraction(known[0]).limit_denominator(1000)
    names = sorted(set.intersection(*(_named(step, ranks, number) for step, *_ in wrong)))
    if len(names) == 1 or abs(number - Fraction(known[0])) > TOLERANCE * known[0]:
        return None
    foreseen = f": {' or '.join(names)}, which are that in this run" if names else ""
    above = number > 1
    off = f"{number if above else 1 / number} times too {'large' if above else 'small'}"
    sentence = f"every weight is {number} of the mode's{foreseen}"
    return Diagnosis(sentence, str(number), None, f"a factor of {number}", off=off)


def _named(step: RecordedStep, ranks: ParallelDims, number: Fraction) -> set[str]:
    sizes = {
        "dp_size": ranks.dp_size,
        "cp_size": ranks.cp_size,
        "world_size": ranks.dp_size * ranks.cp_size,
        "num_microbatches": step.case.layout.num_microbatches,
        "N": step.step.num_rollouts,
    }
    given = {name: size for name, size in sizes.items() if size > 1}
    if ranks.cp_size == 1:
        given.pop("world_size", None)
    above = {name for name, size in given.items() if size == number}
    return above | {f"1/{name}" for name, size in given.items() if size * number == 1}


def _factor(observed: Array, expected: Sequence[Fraction]) -> float | None:
    """Return what every weight is multiplied by, where that is one number."""
    exact = np.array([float(w) for w in expected])
    kept = exact != 0
    ratio = observed[kept] / exact[kept]
    if not len(ratio) or np.ptp(ratio) > TOLERANCE * abs(ratio[0]) or ratio[0] <= 0:
        return None
    return float(np.median(ratio))


def _hypotheses(tokens: dict[int, int]) -> Iterator[tuple[str, str, dict[int, float]]]:
    """Yield the counts that each step may have been given instead, of the steps that are known."""
    for by, words in ((-1, "before it"), (1, "after it")):
        found = {n: float(tokens[n + by]) for n in tokens if tokens.get(n + by)}
        yield f"divided by the token count of the step {words}", "no framework by name", found
    for width in range(2, _WINDOWS + 1):
        for share, words in ((1, ""), (width, f", divided by {width}")):
            found = {}
            for n in tokens:
                window = [tokens.get(m) for m in range(n - n % width, n - n % width + width)]
                if all(window):
                    found[n] = sum(filter(None, window)) / share
            sentence = f"divided by the token count of {width} optimizer steps together"
            yield sentence + words, _TOGETHER, found
