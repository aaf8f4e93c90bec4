"""A whole training step's experts: what their gradients are off by where all others are right."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from aggverify.diagnosis.observation import TOLERANCE, ObservedSign, WeightObservation
from aggverify.steps.experts import owners, parallel_size


def experts_off(observations: Sequence[WeightObservation]) -> ObservedSign | None:
    """Return the sign of experts' gradients that are wrong, while all others are right.

    It names the number of ranks by which they are too large or too small, where there is one.
    """
    usable = [o for o in observations if o.experts and _of_experts(o)[o.mask].any()]
    if not usable or not all(_others_right(o) for o in observations if o.experts):
        return None
    for words, size in _SIZES:
        for sign, how, power in (("experts-large", "large", 1), ("experts-small", "small", -1)):
            foretold = [float(size(o)) ** power for o in usable]
            if set(foretold) == {1.0}:
                continue
            if all(_off_by(o, times) for o, times in zip(usable, foretold, strict=True)):
                text = f"the gradients of experts are too {how} by the number of {words}"
                return ObservedSign(sign, f"{text}; all others are right")
    return ObservedSign("experts-off", "only the gradients of experts are wrong")


def _of_experts(o: WeightObservation) -> npt.NDArray[np.bool_]:
    return owners(len(o.mask), parallel_size(o.case.layout)) >= 0


def _others_right(o: WeightObservation) -> bool:
    others = ~_of_experts(o)
    return bool(np.isclose(o.observed[others], o.exact[others], rtol=TOLERANCE, atol=0).all())


def _off_by(o: WeightObservation, times: float) -> bool:
    mine = _of_experts(o)
    wanted = times * o.exact[mine]
    return bool(np.isclose(o.observed[mine], wanted, rtol=TOLERANCE, atol=0).all())


def _ranks(o: WeightObservation) -> int:
    return o.case.layout.world_size


_SIZES: tuple[tuple[str, Callable[[WeightObservation], int]], ...] = (
    ("ranks that share them (ep_size)", lambda o: parallel_size(o.case.layout)),
    ("ranks that hold copies of them", lambda o: _ranks(o) // parallel_size(o.case.layout)),
    ("ranks", _ranks),
)
