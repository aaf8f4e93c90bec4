"""Signs of samples that got each other's weights, or stand in twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from aggverify.diagnosis.observation import Array, ObservedSign, WeightObservation, close
from aggverify.oracles import Sample


def sorted_by_id(observations: Sequence[WeightObservation]) -> ObservedSign | None:
    """In every micro-batch the right weights, but handed out in order of the ids."""
    usable = _without_blanks(observations)
    for unit in ("rollout", "group"):
        if _shows([(o, _by_id(o, unit)) for o in usable]):
            name = "prompt group" if unit == "group" else unit
            return ObservedSign(
                "sorted-by-id", f"weights are handed out in ascending order of {name} ids"
            )
    return None


def unsorted_wrongly(observations: Sequence[WeightObservation]) -> ObservedSign | None:
    """In every micro-batch the right weights, sorted once more where sorting is to be undone."""
    usable = _without_blanks(observations)
    for name, key in _SORTED_BY:
        for words, times in (("applied twice, not undone", 2), ("never undone", 1)):
            if _shows([(o, _sorted_again(o, key, times)) for o in usable]):
                return ObservedSign(
                    "unsorted-wrongly", f"the order of samples by {name} is {words}"
                )
    return None


def _without_blanks(observations: Sequence[WeightObservation]) -> list[WeightObservation]:
    """Return those without a fully masked sample, which has no weight that could move."""
    return [o for o in observations if all(s.num_unmasked for s in o.case.step.samples)]


def _shows(foretold: Sequence[tuple[WeightObservation, Array]]) -> bool:
    """Whether all weights are as foretold, which some of the right ones are not."""
    fits = all(close(o.observed, weights) for o, weights in foretold)
    return fits and any(not close(weights, o.exact) for o, weights in foretold)


Key = Callable[[Sample], int]
_SORTED_BY: tuple[tuple[str, Key], ...] = (
    ("length", lambda s: s.response_length),
    ("length, the longest first", lambda s: -s.response_length),
    ("unmasked tokens", lambda s: s.num_unmasked),
    ("unmasked tokens, the most first", lambda s: -s.num_unmasked),
    ("whole length", lambda s: s.total_length),
    ("whole length, the longest first", lambda s: -s.prompt_length - s.response_length),
    ("rollout id", lambda s: s.rollout),
)


def _sorted_again(o: WeightObservation, key: Key, times: int) -> Array:
    def moved(members: Sequence[int]) -> list[int]:
        order = sorted(range(len(members)), key=lambda n: key(o.case.step.samples[members[n]]))
        places = list(range(len(members)))
        for _ in range(times):
            places = [places[n] for n in order]
        return [members[n] for n in places]

    return _handed_out(o, moved)


def _by_id(o: WeightObservation, unit: str) -> Array:
    return _handed_out(
        o, lambda cell: sorted(cell, key=lambda i: getattr(o.case.step.samples[i], unit))
    )


def _handed_out(o: WeightObservation, whose: Callable[[Sequence[int]], Sequence[int]]) -> Array:
    """Return weights where every sample of a micro-batch has the right ones of ``whose``."""
    step = o.case.step
    weights = np.maximum.reduceat(o.exact, step.offsets).tolist()
    moved = list(weights)
    for _, _, cell in o.case.layout.cells():
        for i, source in zip(cell, whose(cell), strict=True):
            moved[i] = weights[source]
    lengths = [s.response_length for s in step.samples]
    return np.where(o.mask, np.repeat(moved, lengths), 0.0)


def filled_up(observations: Sequence[WeightObservation]) -> ObservedSign | None:
    """Find micro-batches of an odd number of samples whose last one counts twice."""
    seen = False
    for o in observations:
        times = np.repeat(_fillers(o), [s.response_length for s in o.case.step.samples])[o.mask]
        shares = o.observed[o.mask] / (o.exact[o.mask] * times)
        if not shares.size:
            continue
        if not close(shares, np.full_like(shares, shares[0])):
            return None
        seen |= bool(np.ptp(times))
    if not seen:
        return None
    return ObservedSign(
        "filled-up", "micro-batches are filled up to an even number with the last sample"
    )


def _fillers(o: WeightObservation) -> list[int]:
    times = [1] * len(o.case.step.samples)
    for _, _, cell in o.case.layout.cells():
        times[cell[-1]] += len(cell) % 2
    return times
