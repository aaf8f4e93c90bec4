"""Property tests for people who hold per-token weights of their own: no ranks, no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, given, settings

from aggverify import oracles
from aggverify.checks.comparison import Mismatch, worst_weight
from aggverify.errors import InputError
from aggverify.execution.subject import CANDIDATE_ROUNDINGS
from aggverify.generation.backend import BACKEND, seeded
from aggverify.generation.strategies import cases
from aggverify.report.findings import drawn
from aggverify.report.formatting import drawing, fraction, number, token_name
from aggverify.steps.case import Case


def assert_invariant(
    weights: Callable[[Case], Sequence[float]],
    *,
    mode: str | None = None,
    divisor: float | None = None,
    precision: str = "float64",
    roundings: int = CANDIDATE_ROUNDINGS,
    max_examples: int = 200,
) -> None:
    """Assert that weights do not depend on the layout, and are those of ``mode`` if one is named.

    ``weights(case)`` gives one number per response token, flat in the step's order. Drawn cases are
    compared with the same step on one rank in one micro-batch, or with the mode's exact weights,
    under the bound of ``roundings`` roundings in ``precision`` (docs/bounds.md). Raises
    AssertionError with the smallest case and its worst token.
    """

    @settings(
        max_examples=max_examples,
        deadline=None,
        database=None,
        derandomize=True,
        backend=BACKEND,
        phases=(Phase.generate, Phase.shrink),
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def holds(case: Case) -> None:
        found = _taken(weights, case)
        if mode is None:
            expected = tuple(Fraction(w) for w in _taken(weights, case.trivial).tolist())
            more = roundings  # both sides round
        else:
            expected = oracles.weights(mode, case.step, divisor=divisor)
            more = 0
        worst = worst_weight(found, expected, roundings + more, precision)
        if worst is not None:
            reference = mode or "the same step on one rank"
            raise AssertionError(_message(case, expected, found, worst, reference))

    with seeded(0):
        holds()


def _taken(weights: Callable[[Case], Sequence[float]], case: Case) -> np.ndarray:
    found = np.asarray(weights(case), dtype=np.float64)
    if found.shape != (case.step.num_response_tokens,):
        raise InputError(
            f"one weight per response token, {case.step.num_response_tokens} of them, got an array "
            f"of shape {found.shape}"
        )
    return found


def _message(
    case: Case,
    expected: Sequence[Fraction],
    found: np.ndarray,
    worst: Mismatch,
    reference: str,
) -> str:
    step, token = drawn(case), worst.token
    assert token is not None
    return "\n".join(
        (
            f"weight of {token_name(step, token)}: {number(float(found[token]))}, expected "
            f"{fraction(expected[token])} ({reference})",
            f"error {float(worst.error):.3g}, bound {float(worst.bound):.2g}",
            *drawing(step),
        )
    )
