"""A person's own mode: a short file with ``weights(step)`` or ``scalar(step, losses)``."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from .errors import OracleError
from .evaluate import dotted
from .modes.base import exact_number
from .step import Step

Weights = tuple[Fraction, ...]
Scalar = Callable[[Step, Sequence[Fraction]], Any]


@dataclass(frozen=True, slots=True)
class CustomOracle:
    """Exact weights out of a person's file; every call is checked."""

    name: str
    function: Callable[[Step], Any]
    path: str = ""
    """The file, as it was named."""

    def weights(self, step: Step) -> Weights:
        """Weight of every response token, flat, 0 where masked.

        Raises OracleError when the file gives anything else, or not the same twice.
        """
        return _repeatable_weights(self, step)

    def scalar(self, step: Step, losses: Any, *, dtype: str | None = None) -> Fraction:
        """``sum w*l`` with these weights; takes losses as :func:`oracles.scalar` does."""
        return dotted(self.weights(step), step, losses, dtype)

    def _call(self, step: Step) -> Weights:
        try:
            given = self.function(step)
            if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable):
                raise OracleError(
                    f"{self.name} must give a flat sequence of weights, got {given!r}"
                )
            values = list(given)
        except OracleError:
            raise
        except (Exception, SystemExit) as error:
            raise OracleError(f"{self.name} raised {type(error).__name__}: {error}") from error
        if len(values) != step.num_response_tokens:
            raise OracleError(
                f"{self.name} must give one weight per response token, flat over all samples: "
                f"{step.num_response_tokens}, got {len(values)}"
            )
        found = tuple(_exact(self.name, value) for value in values)
        mask = b"".join(s.loss_mask for s in step.samples)
        for token, (bit, weight) in enumerate(zip(mask, found, strict=True)):
            if weight and not bit:
                raise OracleError(
                    f"{self.name} gives the masked token {token} the weight {weight}; masked "
                    f"tokens weigh 0"
                )
        return found


@lru_cache(maxsize=4096)
def _repeatable_weights(oracle: CustomOracle, step: Step) -> Weights:
    first, again = oracle._call(step), oracle._call(step)
    if first != again:
        raise OracleError(
            f"{oracle.name} is not deterministic: on the same step it gave {_shown(first)} "
            f"and then {_shown(again)}"
        )
    return first


def load(path: str | Path) -> CustomOracle:
    """Run a Python file and take its ``weights(step)`` or ``scalar(step, losses)``.

    Numbers may be int, Fraction or float; a float is taken for the exact number it is, so write
    ``Fraction(1, n)`` for ``1 / n``. ``scalar`` gets the losses as Fractions, is probed with one
    loss at a time, and must be linear. Raises OracleError when the file is missing, cannot run, or
    defines neither.
    """
    path = Path(path)
    if not path.is_file():
        raise OracleError(f"no such oracle file: {path}")
    try:
        names = runpy.run_path(str(path))
    except (Exception, SystemExit) as error:
        raise OracleError(f"cannot run {path}: {type(error).__name__}: {error}") from error
    if callable(names.get("weights")):
        return CustomOracle(path.name, names["weights"], str(path))
    if callable(names.get("scalar")):
        return CustomOracle(path.name, _probed(path.name, names["scalar"]), str(path))
    raise OracleError(
        f"{path} defines neither weights(step), one weight per response token, nor "
        f"scalar(step, losses)"
    )


def _probed(name: str, scalar: Scalar) -> Callable[[Step], list[Fraction]]:
    """Return the weights a linear scalar implies: its values at the unit vectors."""

    def weights(step: Step) -> list[Fraction]:
        n = step.num_response_tokens
        zero = [Fraction(0)] * n
        at_zero = _exact(name, scalar(step, zero))
        if at_zero:
            raise OracleError(f"{name}: the scalar of all-zero losses must be 0, got {at_zero}")
        found = []
        for token in range(n):
            probe = list(zero)
            probe[token] = Fraction(1)
            found.append(_exact(name, scalar(step, probe)))
        for losses in _points(n):
            expected = sum((w * x for w, x in zip(found, losses, strict=True)), Fraction(0))
            given = _exact(name, scalar(step, losses))
            if given != expected:
                raise OracleError(
                    f"{name}: the scalar is not linear in the losses: {given} where the weights "
                    f"at unit losses give {expected} (write it with Fractions, without floats)"
                )
        return found

    return weights


def _points(n: int) -> list[list[Fraction]]:
    """Losses of both signs and of different sizes, where clipping, |l| or l^2 would show."""
    rising = [Fraction(3 * t + 2, 7) for t in range(n)]
    return [rising, [-x for x in rising], [-x if t % 2 else 9 * x for t, x in enumerate(rising)]]


def _exact(name: str, value: Any) -> Fraction:
    exact = exact_number(value)
    if exact is None:
        raise OracleError(f"{name} must give finite numbers, got {value!r}")
    return exact


def _shown(weights: Weights) -> str:
    text = ", ".join(map(str, weights[:6]))
    return f"({text}{', ...' if len(weights) > 6 else ''})"
