"""The first road: exact weights and scalars, nothing rounded anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any

from .errors import OracleError
from .exact import masked_sums, read
from .modes import Mode, mode
from .modes.base import exact_divisor, exact_number
from .policy import DEFAULT_POLICY, Policy
from .step import Step

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
    return _sums([s.loss_mask for s in step.samples], losses, dtype)


def dotted(flat: Sequence[Fraction], step: Step, losses: Any, dtype: str | None) -> Fraction:
    """``sum w*l`` for weights that differ from token to token; losses as in :func:`scalar`."""
    tokens = [bytes((bit,)) for s in step.samples for bit in s.loss_mask]
    return combined(flat, _sums(tokens, losses, dtype))


def _sums(masks: Sequence[bytes], losses: Any, dtype: str | None) -> list[Fraction]:
    """Exact sums over consecutive stretches of tokens."""
    check_number(losses, sum(map(len, masks)))
    if _are_floats(losses, dtype):
        return masked_sums(read(losses, dtype), masks)
    ends = accumulate(map(len, masks))
    return [
        sum((_read(losses, end - len(m) + t) for t, bit in enumerate(m) if bit), _ZERO)
        for m, end in zip(masks, ends, strict=True)
    ]


def check_number(losses: Any, wanted: int) -> None:
    """Raise OracleError unless there is one loss per response token."""
    number = len(losses) if hasattr(losses, "__len__") else None
    if number != wanted:
        raise OracleError(
            f"one loss per response token: the step has {wanted}, "
            f"got {number if number is not None else repr(losses)}"
        )


def _are_floats(losses: Any, dtype: str | None) -> bool:
    """Whether numpy can take them as they are; all else is added one by one as fractions."""
    if hasattr(losses, "dtype"):
        return dtype is not None or losses.dtype.kind == "f"
    return all(type(x) is float for x in losses)


def _read(losses: Sequence[object], token: int) -> Fraction:
    exact = exact_number(losses[token])
    if exact is None:
        raise OracleError(f"unmasked losses must be finite, got {losses[token]!r} at token {token}")
    return exact


def combined(per_sample: Sequence[Fraction], sums: Sequence[Fraction]) -> Fraction:
    """``sum w_i * S_i`` over one common denominator: no gcd of ever longer partial sums."""
    pairs = [(w, s) for w, s in zip(per_sample, sums, strict=True) if s]
    below = [w.denominator * s.denominator for w, s in pairs]
    common = math.lcm(*below)
    terms = (
        w.numerator * s.numerator * (common // d) for (w, s), d in zip(pairs, below, strict=True)
    )
    return Fraction(sum(terms), common)
