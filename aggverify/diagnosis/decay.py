"""Weights that shrink or grow from one micro-batch to the next.

They are divided, or summed over ranks, again at every accumulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from aggverify.diagnosis.observation import TOLERANCE, Array, ObservedSign, WeightObservation
from aggverify.steps.layouts import token_owner

_LONG = 3
"""Micro-batches of a step on which a power is distinguished from another function of their
number."""
_MAX_DENOMINATOR = 64


def decay(observations: Sequence[WeightObservation]) -> ObservedSign | None:
    """Return the sign of weights that are off by a power of one number, or of a number of ranks.

    The exponent is the number of micro-batches that follow a token's own, or one more.
    """
    usable = [o for o in observations if o.expected is not None and o.mask.any()]
    if max((o.case.layout.num_microbatches for o in usable), default=0) < _LONG:
        return None
    pairs = [_ratios(o) for o in usable]
    if any(not (np.isfinite(ratio).all() and (ratio > 0).all()) for ratio, _ in pairs):
        return None
    ratios, later = (np.concatenate(part) for part in zip(*pairs, strict=True))
    layouts = [o.case.layout for o in usable]
    sizes = [(layout.dp_size, layout.cp_size, layout.world_size) for layout in layouts]
    for words, own in zip(_SIZES, zip(*sizes, strict=True), strict=True):
        counts = np.concatenate([[n] * len(r) for n, (r, _) in zip(own, pairs, strict=True)])
        for times, sign, how in ((1, "grows", "multiplied"), (-1, "decays", "divided")):
            foretold = counts.astype(np.float64) ** (times * later)
            if (foretold != 1).any() and _near(ratios, foretold):
                text = f"the gradient of a micro-batch is {how} by the number of {words}"
                return ObservedSign(sign, f"{text} as often as micro-batches follow")
    for more, words in (
        (0, "as often as micro-batches follow"),
        (1, "once and as often as follow"),
    ):
        steps = later + more
        base = _base(ratios, steps)
        if base is not None:
            how = f"divided by {base}" if base > 1 else f"multiplied by {1 / base}"
            return ObservedSign("decays", f"the gradient of a micro-batch is {how} {words}")
    return None


_SIZES = ("data-parallel ranks", "context-parallel ranks", "ranks")


def _near(ratios: Array, foretold: Array) -> bool:
    return bool((np.abs(ratios - foretold) <= TOLERANCE * foretold).all())


def _ratios(o: WeightObservation) -> tuple[Array, Array]:
    """Observed over expected weight of every unmasked token, and how many micro-batches follow."""
    micro_batch = np.array([k for _, _, k in token_owner(o.case.step, o.case.layout)])[o.mask]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = o.observed[o.mask] / o.exact[o.mask]
    return ratio, (o.case.layout.num_microbatches - 1 - micro_batch).astype(np.float64)


def _base(ratios: Array, steps: Array) -> Fraction | None:
    """Return the number whose negative powers these ratios are."""
    informative = steps > 0
    if not informative.any() or np.ptp(steps[informative]) == 0:
        return None
    base = Fraction(
        float(ratios[informative][0] ** (-1 / steps[informative][0]))
    ).limit_denominator(_MAX_DENOMINATOR)
    if base <= 0 or base == 1:
        return None
    return base if _near(ratios, float(base) ** -steps) else None
