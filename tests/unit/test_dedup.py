"""When a finding on another case is the one that was found."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from aggverify.checks import Finding
from aggverify.generation.catalogue import plain_losses
from aggverify.run.search.dedup import same_cause, same_failure
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.world import Fault, Frame, Raised
from aggverify.world.faults import FaultKind

STEP = parse_step("1/11")
CASE = Case(STEP, Layout.trivial(1), plain_losses(STEP))


def off(factor: float, **changes: object) -> Finding:
    """The weight of token 0 off by that factor."""
    exact = (Fraction(1, 2),) * 2
    found = Finding("AGV101", "c", "", CASE, "token_mean", exact, (factor / 2, 0.5), token=0)
    error, bound = abs(Fraction(factor) - 1) / 2, Fraction(1, 2**50)
    return replace(found, error=error, bound=bound, **changes)  # type: ignore[arg-type]


def raised(kind: str, line: str) -> Finding:
    error = Raised(kind, "", (Frame("r.py", 3, "reduce", "candidate", line),))
    fault = Fault("exception", 0, "rank 0 raised", errors={0: error})
    return Finding("AGV401", "c", "", CASE, "token_mean", fault=fault)


def test_a_rounding_is_not_a_smaller_factor_but_a_larger_one_may_show_a_rounding() -> None:
    assert (
        same_failure(off(8), off(2))
        and same_failure(off(8), off(1.5))
        and same_failure(off(1.004), off(1.001))
    )
    assert not same_failure(off(8), off(1 + 2**-25))
    assert same_failure(off(1 + 2**-25), off(1 + 2**-26)) and same_failure(off(1 + 2**-25), off(2))


def test_a_code_a_term_or_a_number_that_is_none_makes_another_finding() -> None:
    assert not same_failure(off(2), None)
    assert not same_failure(off(2), off(2, code="AGV103"))
    assert not same_failure(off(2, term="kl"), off(2, term="entropy"))
    nan = replace(off(2), observed=(float("nan"), 0.5), error=Fraction(0), bound=Fraction(0))
    assert (
        same_failure(nan, nan) and not same_failure(nan, off(2)) and not same_failure(off(2), nan)
    )


def test_an_exception_is_its_type_and_line() -> None:
    one = raised("KeyError", "x['a']")
    assert same_failure(one, raised("KeyError", "x['a']"))
    assert not same_failure(one, raised("KeyError", "x['b']")) and not same_failure(
        one, raised("TypeError", "x")
    )


@pytest.mark.parametrize("kind", ["diverged", "blocked", "died"])
def test_what_a_rank_raised_while_others_waited_is_no_other_finding(kind: FaultKind) -> None:
    """Whether it still came to that depends on when its ranks were stopped."""
    stopped = Finding("AGV404", "c", "", CASE, "token_mean", fault=Fault(kind, 0, "rank 0 waits"))
    error = Raised("RuntimeError", "", (Frame("r.py", 3, "reduce", "candidate", "all_reduce(x)"),))
    raises = replace(stopped, fault=Fault(kind, 0, "rank 0 waits", errors={0: error}))
    assert same_failure(raises, stopped) and same_failure(stopped, raises)
    assert same_cause(raises, stopped)


def test_sums_have_no_token_and_are_measured_by_their_bound() -> None:
    found = replace(off(2), token=None, error=Fraction(1), bound=Fraction(1, 2**50))
    low = replace(found, case=replace(CASE, dtype="float32"), bound=Fraction(1, 2**21))
    assert same_failure(found, low) and same_failure(low, found)
    assert not same_failure(found, replace(found, error=Fraction(1, 2**24)))
