"""Which logged numbers must be the same in every layout, and what rounding may do to them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from aggverify.checks.logged_keys import CODE, judge, variants
from aggverify.execution.executed import Execution
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from aggverify.trainer.answer import Log
from tests.unit.test_checks import PLAIN

STEP = parse_step("1/1; 1/11")
CASE = Case(STEP, Layout(parse_micro_batches("0 1")), (1.0, 2.0, 3.0))
"""Two micro-batches, of one token and of two."""


def run(case: Case, *numbers: tuple[float, ...]) -> Execution:
    """One rank's logs, a micro-batch each."""
    logs: tuple[Log, ...] = tuple((("key", each),) for each in numbers)
    return Execution(case, logs=(logs,))


def found(alone: tuple[float, ...], *spread: tuple[float, ...], other: float = -9.0) -> bool:
    one, laid_out, more = variants(CASE)
    rest = (other, *alone[1:])
    finding = judge("logs", PLAIN, CASE, [run(one, alone), run(laid_out, *spread), run(more, rest)])
    assert finding is None or (finding.code, "log['key']" in finding.message) == (CODE, True)
    return finding is not None


@pytest.mark.parametrize(
    ("alone", "spread"),
    [
        ((0.75,), ((0.25,), (0.5,))),  # shares of the step
        ((1.5, 3.0), ((0.5, 1.0), (1.0, 2.0))),  # sums and counts
        ((0.1,), ((float(np.float32(0.1) / 3),), (float(np.float32(0.2) / 3),))),
        ((3.0,), ((3.0,), (3.0,))),  # everybody's
    ],
)
def test_what_merges_to_the_same_is_right(
    alone: tuple[float, ...], spread: tuple[tuple[float, ...], ...]
) -> None:
    assert not found(alone, *spread)


@pytest.mark.parametrize(
    ("alone", "spread"),
    [
        ((0.75,), ((0.5,), (0.75,))),  # each one's own mean
        ((1.5, 3.0), ((0.5, 3.0), (1.0, 3.0))),  # the whole count, twice
        ((0.75,), ((math.nan,), (0.5,))),
        ((0.75,), ((0.25 * (1 + 1e-4),), (0.5,))),
    ],
)
def test_what_merges_to_another_number_is_found(
    alone: tuple[float, ...], spread: tuple[tuple[float, ...], ...]
) -> None:
    assert found(alone, *spread)


def test_what_does_not_change_with_the_losses_is_of_the_layout() -> None:
    assert not found((1.0,), (1.0,), (2.0,), other=1.0)


def test_losses_are_of_one_sign_where_keys_are_compared() -> None:
    some, same, others = variants(CASE)
    assert min(some.losses) > 0 > max(others.losses)
    assert same.layout == CASE.layout and some.layout.is_trivial and others.layout.is_trivial
