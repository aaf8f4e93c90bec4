"""On which steps do modes have the same weights? Inputs there cannot distinguish them."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from .errors import OracleError
from .modes import Mode, mode
from .modes.base import exact_divisor
from .policy import DEFAULT_POLICY, Policy
from .step import Step


def classes(
    step: Step,
    modes: Iterable[str | Mode],
    *,
    divisor: float | Fraction = 16.0,
    policy: Policy = DEFAULT_POLICY,
) -> tuple[tuple[str, ...], ...]:
    """Return the modes sorted into classes of equal weights on the step, in the order given.

    ``divisor`` goes to the modes that take one. Weights are compared exactly, and only where a
    token is unmasked: on a step without one, all modes coincide.
    """
    visible = [i for i, sample in enumerate(step.samples) if sample.num_unmasked]
    found: dict[tuple[Fraction, ...], list[str]] = {}
    for name in modes:
        taken = mode(name)
        exact = exact_divisor(taken, divisor if taken.needs_divisor else None)
        weights = taken.sample_weights(step, policy, exact)
        found.setdefault(tuple(weights[i] for i in visible), []).append(taken.name)
    return tuple(map(tuple, found.values()))


def distinguishes(
    step: Step,
    modes: Iterable[str | Mode],
    *,
    divisor: float | Fraction = 16.0,
    policy: Policy = DEFAULT_POLICY,
) -> bool:
    """Whether all these modes have pairwise different weights on the step.

    Raises OracleError when the same mode is named twice: no step could distinguish it from itself.
    """
    names = list(modes)
    repeated = {n if isinstance(n, str) else n.name for n in names if names.count(n) > 1}
    if repeated:
        raise OracleError(f"modes to be told apart must differ, got {min(repeated)!r} twice")
    return len(classes(step, names, divisor=divisor, policy=policy)) == len(names)
