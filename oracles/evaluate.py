"""The first road: exact weights and scalars, nothing rounded anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from oracles.errors import OracleError
from oracles.exact import masked_sums, read
from oracles.modes import Mode, mode
from oracles.modes.base import exact_divisor, exact_number
from oracles.policy import DEFAULT_POLICY, Policy
from oracles.step import Step

Divisor = float | Fraction | None
_ZERO = Fraction(0)


def weights(
    name: str | Mode,
    step: Step,
    *,
    divisor: Divisor = None,
    policy: Policy = DEFAULT_POLICY,
) -> tuple[Fraction, ...]:
    """Exact weight of every response token, flat in step order, 0 where masked.

    Raises OracleError for an unknown mode, and for a divisor that is missing, cannot divide, or
    is given to a mode that takes none.
    """
    found = mode(name)
    per_sample = found.sample_weights(step, policy, exact_divisor(found, divisor))
    out: list[Fraction] = []
    for sample, weight in zip(step.samples, per_sample, strict=True):
        if sample.num_unmasked == len(sample.loss_mask):
            out += [weight] * sample.num_unmasked
        else:
            out.extend(map((_ZERO, weight).__getitem__, sample.loss_mask))
    return tuple(out)


def scalar(
    name: str | Mode,
    step: Step,
    losses: Any,
    *,
    divisor: Divisor = None,
    policy: Policy = DEFAULT_POLICY,
    dtype: str | None = None,
) -> Fraction:
    """Exact step scalar of one loss per response token, flat in step order.

    Losses behind the mask are skipped, never read. Raises OracleError when an unmasked one is not
    finite, when their number is not the step's, and as :func:`weights` does.
    """
    found = mode(name)
    per_sample = found.sample_weights(step, policy, exact_divisor(found, divisor))
    return combined(per_sample, unmasked_sums(step, losses, dtype))


def scalars(
    names: Iterable[str | Mode],
    step: Step,
    losses: Any,
    *,
    divisor: Divisor = None,
    policy: Policy = DEFAULT_POLICY,
    dtype: str | None = None,
) -> dict[str, Fraction]:
    """Exact step scalars of several modes from one pass over the losses, by mode name.

    ``divisor`` goes to the modes that take one; ``dtype="bfloat16"`` reads uint16 bit patterns.
    """
    found = [mode(name) for name in names]
    per_sample = [
        m.sample_weights(step, policy, exact_divisor(m, divisor if m.needs_divisor else None))
        for m in found
    ]
    sums = unmasked_sums(step, losses, dtype)
    return {m.name: combined(w, sums) for m, w in zip(found, per_sample, strict=True)}


def unmasked_sums(step: Step, losses: Any, dtype: str | None = None) -> list[Fraction]:
    """Exact sum of the unmasked losses of each sample; raises OracleError as :func:`scalar`."""
    number = len(losses) if hasattr(losses, "__len__") else None
    if number != step.num_response_tokens:
        raise OracleError(
            f"one loss per response token: the step has {step.num_response_tokens}, "
            f"got {number if number is not None else repr(losses)}"
        )
    if _are_floats(losses, dtype):
        return masked_sums(read(losses, dtype), [s.loss_mask for s in step.samples])
    return _rational_sums(step, losses)


def _are_floats(losses: Any, dtype: str | None) -> bool:
    """Whether numpy can take them as they are; all else is added one by one as fractions."""
    if hasattr(losses, "dtype"):
        return dtype is not None or losses.dtype.kind == "f"
    return all(type(x) is float for x in losses)


def _rational_sums(step: Step, losses: Sequence[object]) -> list[Fraction]:
    sums = []
    for sample, start in zip(step.samples, step.offsets, strict=True):
        total = _ZERO
        for token, bit in enumerate(sample.loss_mask, start):
            if bit:
                exact = exact_number(losses[token])
                if exact is None:
                    raise OracleError(
                        f"unmasked losses must be finite, got {losses[token]!r} at token {token}"
                    )
                total += exact
        sums.append(total)
    return sums


def combined(per_sample: Sequence[Fraction], sums: Sequence[Fraction]) -> Fraction:
    """``sum w_i * S_i`` over one common denominator: no gcd of ever longer partial sums."""
    pairs = [(w, s) for w, s in zip(per_sample, sums, strict=True) if s]
    below = [w.denominator * s.denominator for w, s in pairs]
    common = math.lcm(*below)
    terms = (
        w.numerator * s.numerator * (common // d) for (w, s), d in zip(pairs, below, strict=True)
    )
    return Fraction(sum(terms), common)
