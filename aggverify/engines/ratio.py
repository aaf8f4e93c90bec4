"""By which sizes the updates of two engines differ, read off their scalars."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from aggverify.engines.spec import EngineSpec, Sizes
from aggverify.model import Power

_SIZES = ("dp_size", "cp_size", "num_microbatches", "num_rollouts", "tokens")
_PROBES = ((2, 3, 5, 7, 11), (5, 2, 3, 13, 17))
"""Different primes in the order of the sizes: a product of sizes is identified by its factors.
Small ones, since a loss is made for every rank and micro-batch; each size has another in each."""


def ratio(one: EngineSpec, other: EngineSpec) -> tuple[Power, ...] | None:
    """Return ``one``'s update over ``other``'s on the same losses, as a product of sizes.

    Empty where they do the same, None where it is no such product. Where one of the engines never
    has sliced losses, both get gathered ones.
    """
    gathered = "zigzag" in {*one.not_claimed, *other.not_claimed}
    found = {_powers(one, other, primes, gathered) for primes in _PROBES}
    return found.pop() if len(found) == 1 else None


def _powers(
    one: EngineSpec, other: EngineSpec, primes: Sequence[int], gathered: bool
) -> tuple[Power, ...] | None:
    left = _update(one, primes, gathered) / _update(other, primes, gathered)
    powers = []
    for size, prime in zip(_SIZES, primes, strict=True):
        power = _multiplicity(left.numerator, prime) - _multiplicity(left.denominator, prime)
        left /= Fraction(prime) ** power
        if power:
            powers.append(Power(size, power))
    return tuple(powers) if left == 1 else None


def _update(engine: EngineSpec, primes: Sequence[int], gathered: bool) -> Fraction:
    """Return the update of losses that add up to 1.

    Every context-parallel rank counts all of its micro-batch's tokens. The step's count is then
    ``tokens * dp * k``; it is made to stand for the prime ``tokens`` alone.
    """
    dp, cp, k, rollouts, tokens = primes
    cells, losses = dp * cp * k, dp * k * (1 if gathered else cp)
    sizes = Sizes(dp, cp, k, rollouts, gathered)
    found = engine.value([Fraction(1, losses)] * losses, [tokens] * cells, sizes)
    exponent = _multiplicity(found.numerator, tokens) - _multiplicity(found.denominator, tokens)
    return found / Fraction(dp * k) ** exponent


def _multiplicity(number: int, prime: int) -> int:
    found = 0
    while number and number % prime == 0:
        number //= prime
        found += 1
    return found
