"""A person's own mode: a short file with ``weights(step)`` or ``scalar(step, losses)``."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from oracles.errors import OracleError
from oracles.step import Step

Weights = tuple[Fraction, ...]


@dataclass(frozen=True)
class CustomOracle:
    """Exact weights out of a person's file; every call is checked."""

    name: str
    function: Callable[[Step], Any]

    def weights(self, step: Step) -> Weights:
        """Weight of every response token, flat; raises OracleError when the file is wrong."""
        first, again = self._called(step), self._called(step)
        if first != again:
            raise OracleError(
                f"{self.name} is not deterministic: on the same step it gave {_shown(first)} "
                f"and then {_shown(again)}"
            )
        return first

    def _called(self, step: Step) -> Weights:
        try:
            given = list(self.function(step))
        except OracleError:
            raise
        except Exception as error:
            raise OracleError(f"{self.name} raised {type(error).__name__}: {error}") from error
        if len(given) != step.num_response_tokens:
            raise OracleError(
                f"{self.name} must give one weight per response token, flat over all samples: "
                f"{step.num_response_tokens}, got {len(given)}"
            )
        found = tuple(_exact(self.name, value) for value in given)
        mask = b"".join(s.loss_mask for s in step.samples)
        for token, (bit, weight) in enumerate(zip(mask, found, strict=True)):
            if weight and not bit:
                raise OracleError(
                    f"{self.name} gives the masked token {token} the weight {weight}; masked "
                    f"tokens weigh 0"
                )
        return found


def load(path: str | Path) -> CustomOracle:
    """Run a Python file and take its ``weights(step)`` or ``scalar(step, losses)``.

    ``scalar`` is probed with one loss at a time and must be linear; use Fractions inside. Raises
    OracleError when the file is missing, cannot run, or defines neither.
    """
    path = Path(path)
    if not path.is_file():
        raise OracleError(f"no such oracle file: {path}")
    try:
        names = runpy.run_path(str(path))
    except Exception as error:
        raise OracleError(f"cannot run {path}: {type(error).__name__}: {error}") from error
    if callable(names.get("weights")):
        return CustomOracle(path.name, names["weights"])
    if callable(names.get("scalar")):
        return CustomOracle(path.name, _probed(path.name, names["scalar"]))
    raise OracleError(
        f"{path} defines neither weights(step), one weight per response token, nor "
        f"scalar(step, losses)"
    )


def _probed(
    name: str, scalar: Callable[[Step, Sequence[Fraction]], Any]
) -> Callable[[Step], list[Fraction]]:
    """The weights a linear scalar implies: its values at the unit vectors."""

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
        together = [Fraction(3 * t + 2, 7) for t in range(n)]
        expected = sum((w * x for w, x in zip(found, together, strict=True)), Fraction(0))
        given = _exact(name, scalar(step, together))
        if given != expected:
            raise OracleError(
                f"{name}: the scalar is not linear in the losses: {given} where the weights at "
                f"unit losses give {expected} (write it with Fractions, without floats)"
            )
        return found

    return weights


def _exact(name: str, value: Any) -> Fraction:
    try:
        if isinstance(value, bool):
            raise TypeError
        return Fraction(value)
    except (TypeError, ValueError, OverflowError):
        raise OracleError(f"{name} must give finite numbers, got {value!r}") from None


def _shown(weights: Weights) -> str:
    text = ", ".join(map(str, weights[:6]))
    return f"({text}{', ...' if len(weights) > 6 else ''})"
