"""What earlier outcomes leave of a plan's entry: fewer layouts, no oracle, or a reason to skip."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from aggverify.checks import check
from aggverify.checks.base import FORMULA
from aggverify.codes.state import State
from aggverify.execution.budget import Budget
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.run.outcome.scheduling import Outcome, prune
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.planning.plan import PlannedCheck, plan
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from tests import verdicts

SPACE = Space(max_dp=4, max_cp=2, max_microbatches=2, min_units=2)
SUBJECT = Subject.of(Claim("r.py", "reduce", "native", "sum", "token_mean"))
EVERYTHING = Budget("thorough", step="production")


def entry(name: str, space: Space | None = None) -> PlannedCheck:
    """The entry of a check as it was planned, or with another space."""
    [found] = plan(SUBJECT, [check(name)]).entries
    return found if space is None else replace(found, space=space, instead=None, why_not=None)


def failed(name: str, code: str, layout: Layout | None = None) -> Outcome:
    """A check that failed with that code, on that layout."""
    told = verdicts.report(SUBJECT, code=code)
    if layout is not None:
        step = parse_step("1/1 1/1" if layout.dp_size > 1 else "1/11")
        case = Case(step, layout, (1.0, 1.0))
        told = replace(told, finding=replace(told.finding, case=case))
    return Outcome(entry(name), verdicts.done(name, "", 1, State.FAILED), (told,), RunStatistics())


TWO_CP, TWO_DP = Layout((((0,),),), cp_size=2), Layout((((0,),), ((1,),)))
DP = "independent_of_data_parallel_size"


@pytest.mark.parametrize(
    ("stuck", "left"),
    [
        ([], (4, 2)),
        ([TWO_CP], (4, 1)),
        ([TWO_DP], (1, 2)),
        ([TWO_CP, TWO_DP], (1, 1)),
        ([Layout((((0,),),))], (4, 2)),
    ],
)
def test_the_dimension_is_left_out(stuck: list[Layout], left: tuple[int, int]) -> None:
    earlier = [failed("two_paths_agree", "AGV404", layout) for layout in stuck]
    space = prune(entry("weights_follow_the_samples", SPACE), earlier).space
    assert space is not None
    assert (space.max_dp, space.max_cp) == left


def test_nothing_earlier_leaves_the_entry_alone() -> None:
    for one in plan(SUBJECT).entries:
        assert prune(one, []) == one


def test_where_ranks_are_blocked_no_further_step_is_run() -> None:
    narrow = Space(max_cp=2, min_units=2)
    blocked = [failed("two_paths_agree", "AGV404", TWO_CP)]
    assert "gets through no such step" in str(prune(entry(DP, narrow), blocked).why_not)
    assert prune(entry(DP, narrow), []).instead is None


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("AGV401", "does not get through a step"),
        ("AGV501", "does not get through a step"),
        ("AGV407", "depend on more than the step"),
        ("AGV208", "depend on more than the step"),
        ("AGV201", None),
    ],
)
def test_some_codes_make_all_later_checks_worthless(code: str, reason: str | None) -> None:
    plain = [failed("two_paths_agree", code, Layout.trivial(1))]
    left = prune(entry("weights_follow_the_samples"), plain)
    assert (left.instead is None) if reason is None else (reason in str(left.why_not))


@pytest.mark.parametrize("code", ["AGV401", "AGV402", "AGV404"])
def test_what_fails_in_one_dimension_hides_no_other(code: str) -> None:
    left = prune(entry("reported_loss_is_the_scalar", SPACE), [failed(DP, code, TWO_DP)])
    assert (left.instead, left.space) == (None, replace(SPACE, max_dp=1))


def test_what_a_plain_step_does_not_have_is_left_out() -> None:
    wide = replace(SPACE, fan_out=True)
    told = failed(DP, "AGV401", Layout.trivial(1))

    def left(step: str, space: Space = wide, loss: float = 1.0) -> Space | None:
        known = parse_step(step)
        losses = (loss,) * known.num_response_tokens
        case = Case(known, Layout.trivial(len(known.samples)), losses)
        [report] = told.findings
        found = replace(report, finding=replace(report.finding, case=case))
        after = prune(entry(DP, space), [replace(told, findings=(found,))])
        return None if after.instead else after.space

    assert left("1/11") is None
    assert left("1/11+2/1") == replace(wide, fan_out=False)
    assert left("1/00") == replace(wide, empty_samples=False)
    assert left("1/00", replace(wide, blank_a_unit=True)) is None
    assert left("1/11", loss=float("nan")) == wide


def test_a_wrong_formula_leaves_invariance_and_skips_what_needs_it() -> None:
    wrong = [failed("weights_are_the_modes", "AGV101")]
    assert wrong[0].wrong >= {FORMULA}
    assert not prune(entry(DP), wrong).subject.trust_formula
    skipped = [e for e in plan(SUBJECT).entries if prune(e, wrong).why_not != e.why_not]
    assert any("formula is wrong already" in str(prune(e, wrong).why_not) for e in skipped)


def test_a_hazard_is_no_failure_but_spoils_what_its_code_says() -> None:
    hazard = failed("weights_are_the_modes", "AGV101")
    hazard = replace(hazard, summary=structs.replace(hazard.summary, state=State.HAZARD))
    assert FORMULA not in hazard.wrong
    last = [
        e for e in plan(SUBJECT.claiming(engine="mean", budget=EVERYTHING)).entries if e.check.last
    ]
    assert all(prune(e, [hazard]).instead is None for e in last)


def test_what_is_planned_away_keeps_its_reason() -> None:
    unclaimed = entry("two_paths_agree")
    assert unclaimed.why_not == "no --against TARGET"
    assert prune(unclaimed, [failed(DP, "AGV401")]) == unclaimed


def test_the_last_check_is_not_run_once_another_fails() -> None:
    thorough = SUBJECT.claiming(engine="mean", budget=EVERYTHING)
    last = [e for e in plan(thorough).entries if e.check.last]
    assert last and all(e.instead is None for e in last)
    for one in last:
        assert "other checks fail" in str(prune(one, [failed(DP, "AGV203")]).why_not)
