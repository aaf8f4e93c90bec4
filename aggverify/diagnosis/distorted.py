"""Sums divided by a changed count: moved by a number, floored, capped, rounded, to a power."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from aggverify.diagnosis.observation import TOLERANCE, Array, ObservedSign, WeightObservation
from aggverify.diagnosis.terms import TOKENS, Term, Tokens

_COUNTED = (TOKENS, "response tokens", "prompt and response tokens")
_UNITS = ("sample", "rollout", "prompt group", "")
_MULTIPLES = (2, 3, 4, 5, 6, 7, 8, 10, 16, 32, 64, 128)


def distorted_count(observations: Sequence[WeightObservation]) -> ObservedSign | None:
    """Return the one function of a true count that every observed denominator is, if any."""
    usable = [o for o in observations if o.expected is not None and o.mask.any()]
    if not usable or any((o.observed[~o.mask] != 0).any() for o in usable):
        return None
    tokens = Tokens([o.case for o in usable])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.concatenate([o.exact[o.mask] / o.observed[o.mask] for o in usable])
    if not np.isfinite(ratio).all() or (ratio <= 0).any():
        return None
    for unit in _UNITS:
        used = tokens.values(Term(TOKENS, unit)) * ratio
        for what in _COUNTED:
            true = tokens.values(Term(what, unit))
            for text, foretold in _functions(true, used):
                if (np.abs(foretold - used) <= TOLERANCE * used).all():
                    name = Term(what, unit).text
                    return ObservedSign("distorted-count", f"divides by the {name}, {text}")
    return None


def _functions(true: Array, used: Array) -> Iterator[tuple[str, Array]]:
    """Yield what a count may have been made into, with its one number read off the largest."""
    largest, smallest = int(true.argmax()), int(true.argmin())
    moved = used[largest] - true[largest]
    if abs(moved) > TOLERANCE * true[largest]:
        words = f"{'plus' if moved > 0 else 'minus'} {_written(abs(moved))}"
        yield words, true + moved
        for floor in (1.0, 2.0):
            yield f"{words} but at least {floor:g}", np.maximum(true + moved, floor)
    yield f"but at least {_written(used[smallest])}", np.maximum(true, used[smallest])
    yield f"but at most {_written(used[largest])}", np.minimum(true, used[largest])
    for n, (words, step) in product(_MULTIPLES, (("up", np.ceil), ("down", np.floor))):
        rounded = n * step(true / n)
        yield f"rounded {words} to a multiple of {n}", rounded
        yield f"rounded {words} to a multiple of {n}, at least 1", np.maximum(rounded, 1)
    yield "rounded up to a power of two", np.exp2(np.ceil(np.log2(np.maximum(true, 1))))
    if true[largest] > 1:
        power = float(np.log(used[largest]) / np.log(true[largest]))
        yield f"to the power of {_written(power)}", true**power


def _written(value: float) -> str:
    return f"{round(value, 6):g}"
