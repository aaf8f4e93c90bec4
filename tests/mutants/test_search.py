"""What a search makes of reducers whose faults hide behind one another, or behind a rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest

from aggverify.checks import Check, formula, linearity, order, padding, shapes, terms, windows
from aggverify.checks.collectives import AGREEMENT
from aggverify.checks.determinism import REPEAT, STATE
from aggverify.checks.layout import CONTEXT_PARALLEL, DATA_PARALLEL
from aggverify.codes.state import State
from aggverify.execution.budget import MIN_EXAMPLES, Budget
from aggverify.execution.claim import Claim
from aggverify.execution.deadline import OutOfTime
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.run.opening import opened
from aggverify.run.outcome.events import CheckFinished, CheckStarted, ConfirmedFinding, Event
from aggverify.run.outcome.scheduling import Outcome
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.outcome.verdict import RunVerdict
from aggverify.run.planning.plan import plan
from aggverify.run.search.entry_runner import run_check
from aggverify.run.search.runner import CheckRun
from aggverify.run.session import examine
from aggverify.world import Pool
from tests.conftest import ROOT

FILE = Path(__file__).with_name("searched.py")
RIGHT = ROOT / "examples" / "native" / "sum" / "token_mean.py"


@pytest.fixture(scope="module")
def executor(shared_pool: Pool) -> Iterator[Executor]:
    with opened(shared_pool, {"path": str(FILE)}) as template:
        yield Executor(template)


def subject(function: str, mode: str, *terms: str) -> Subject:
    budget = Budget("quick", max_examples=5)
    claim = Claim(str(FILE), function, "native", "sum", mode, max_world=4, budget=budget)
    return Subject.of(replace(claim, terms=terms))


def outcome(executor: Executor, about: Subject, check: Check) -> Outcome:
    [entry] = plan(about, [check]).entries
    return run_check(entry, executor)


def test_a_wrong_factor_does_not_slide_into_its_rounding(executor: Executor) -> None:
    about = subject("sum_of_means_in_float32", "sample_mean")
    [found] = outcome(executor, about, formula.CHECK).findings
    told = found.finding
    assert told.expected is not None and told.observed is not None and told.token is not None
    assert told.observed[told.token] / told.expected[told.token] == pytest.approx(2)


@pytest.mark.parametrize("check", [REPEAT, STATE, windows.CHECK], ids=lambda check: check.name)
def test_equal_exceptions_are_no_evidence(executor: Executor, check: Check) -> None:
    summary = outcome(executor, subject("raises", "token_mean"), check).summary
    assert summary.cases > 0
    assert summary.state is State.NOT_JUDGED
    assert "KeyError: 'loss_mask'" in str(summary.reason)


def test_a_few_results_are_not_enough(executor: Executor) -> None:
    summary = outcome(executor, subject("mostly_raises", "token_mean"), REPEAT).summary
    assert summary.state is State.NOT_JUDGED
    assert "cases came to a result, and 3 are the least that a check passes on" in summary.reason


def by_default(**budget: object) -> Subject:
    about = replace(subject("right", "token_mean").claim, budget=Budget("ci", **budget))
    return Subject.of(about)


@pytest.mark.parametrize("check", [formula.CHECK, order.CHECK], ids=lambda check: check.name)
def test_what_the_clock_leaves_out_is_counted(executor: Executor, check: Check) -> None:
    [entry] = plan(by_default(), [check]).entries
    late, whole = run_check(entry, executor, seconds=0.0), run_check(entry, executor)
    [cut] = late.statistics.observer.cut_short
    assert late.summary.state is State.OK
    assert (cut.check, cut.planned) == (check.name, entry.examples)
    assert cut.drawn < entry.examples
    assert MIN_EXAMPLES <= late.summary.cases < whole.summary.cases
    assert whole.statistics.observer.cut_short == []


@pytest.mark.parametrize("given", [{"seconds": 0.0}, {"part": 0.0}], ids=["time", "part"])
def test_a_list_ends_where_its_time_does_but_not_before_the_least(
    executor: Executor, given: dict[str, float]
) -> None:
    [entry] = plan(by_default(), [shapes.CHECK]).entries
    late = run_check(entry, executor, **given)
    assert late.summary.state is State.OK
    assert MIN_EXAMPLES <= late.summary.cases < 2 * MIN_EXAMPLES
    [cut] = late.statistics.observer.cut_short
    assert (cut.check, cut.drawn, cut.planned) == (shapes.NAME, 0, entry.examples)


@pytest.mark.parametrize("check", [formula.CHECK, shapes.CHECK], ids=lambda check: check.name)
def test_a_part_is_of_what_is_listed_and_of_what_is_drawn(executor: Executor, check: Check) -> None:
    [entry] = plan(by_default(max_examples=60), [check]).entries
    whole, half = run_check(entry, executor), run_check(entry, executor, part=0.5)
    listed = whole.summary.cases - entry.examples
    [cut] = half.statistics.observer.cut_short
    assert cut.drawn == entry.examples / 2
    assert half.summary.cases - cut.drawn == max(MIN_EXAMPLES, ceil(listed / 2))


@pytest.mark.parametrize(
    ("check", "profile", "cases"),
    [
        (AGREEMENT, "ci", MIN_EXAMPLES),
        (linearity.CHECK, "ci", MIN_EXAMPLES),
        (linearity.CHECK, "quick", 19),  # its list, and its part of 20
        (windows.CHECK, "ci", 3),  # one of two: it is meant to run few
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_more_than_a_part_is_drawn_where_too_few_would_be_judged(
    executor: Executor, check: Check, profile: str, cases: int
) -> None:
    about = replace(subject("right", "token_mean").claim, budget=Budget(profile))
    [entry] = plan(Subject.of(about), [check]).entries
    done = run_check(entry, executor)
    assert done.summary.state is State.OK
    assert done.summary.cases == cases
    assert done.statistics.observer.cut_short == []


def test_no_more_are_drawn_than_are_asked_for(executor: Executor) -> None:
    [entry] = plan(by_default(max_examples=3), [linearity.CHECK]).entries
    assert entry.most_examples == 3
    listed = run_check(entry, executor, part=0.0).summary.cases - 3
    assert run_check(entry, executor).summary.cases == listed + 3 < MIN_EXAMPLES


def test_the_rest_of_a_list_of_which_a_part_is_run_follows_the_space(executor: Executor) -> None:
    about = subject("sum_of_means_in_float32", "sample_mean")
    space = formula.CHECK.space(about)
    assert space is not None
    run = CheckRun(formula.CHECK, about, space, executor, RunStatistics())
    assert run.stored_failure(part=0.9) is not None
    run.space = replace(space, needs_hole=True)
    assert run._left is not None
    left = list(run._left)
    assert left and all(case in run.space for case in left)


class ByStep:
    """A deadline at a pace of a hundred steps a second, whatever the machine does."""

    def __init__(self, executor: Executor, seconds: float) -> None:
        self._executor, self._ends = executor, executor.executed / 100 + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._ends - self._executor.executed / 100)

    def look(self) -> None:
        if not self.left:
            raise OutOfTime


@pytest.mark.thorough
def test_too_little_time_leaves_no_check_out(
    shared_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(shared_pool, {"path": str(RIGHT)}) as template:
        executor = Executor(template)
        monkeypatch.setattr(executor, "clock", lambda: executor.executed / 100)

        def verdict(seconds: float) -> RunVerdict:
            about = by_default(max_time=seconds).claim
            about = replace(about, target=str(RIGHT), function="reduce")
            return examine(Subject.of(about), executor, deadline=ByStep(executor, seconds))

        whole = verdict(900)
        takes = whole.executed / 100
        enough, short = verdict(1.5 * takes), verdict(0.8 * takes)
    assert whole.cuts == enough.cuts == ()
    assert enough.executed == whole.executed > short.executed
    assert shapes.NAME in {cut.check for cut in short.cuts}
    for made in (enough, short):
        assert [c.name for c in made.checks if c.state is State.NOT_JUDGED] == []
    least = {c.name: min(c.cases, MIN_EXAMPLES) for c in whole.checks}
    assert all(c.cases >= least[c.name] for c in short.checks)


def test_another_count_of_the_last_window_is_state(executor: Executor) -> None:
    about = subject("tokens_of_the_fullest_window", "token_mean")
    [found] = outcome(executor, about, windows.CHECK).findings
    assert found.finding.code == windows.CODE
    assert found.finding.signs == (windows.EARLIER_STEP,)
    assert found.diagnosis is not None and found.diagnosis.bug is not None
    assert found.diagnosis.bug.name == "state-between-steps"


@pytest.mark.thorough
def test_what_raises_in_one_dimension_does_not_hide_another(executor: Executor) -> None:
    about = subject("raises_in_data_parallel", "token_mean")
    verdict = examine(about, executor, checks=[DATA_PARALLEL, CONTEXT_PARALLEL, padding.CHECK])
    raised, factor = verdict.reports
    assert raised.finding.case.layout.dp_size == 2
    assert "KeyError: 'dp'" in raised.finding.message
    assert factor.finding.code == "AGV201"
    assert factor.diagnosis is not None and factor.diagnosis.factor == "cp_size"
    assert verdict.checks[-1].state is State.OK, verdict.checks[-1]


@pytest.mark.thorough
def test_the_first_wrong_term_does_not_hide_the_second(executor: Executor) -> None:
    about = subject("two_terms", "token_mean", "kl", "entropy")
    found = outcome(executor, about, terms.CHECK).findings
    assert {report.finding.term for report in found} == {"kl", "entropy"}
    assert len(found) == 2 and all(report.confirmed for report in found)


@pytest.mark.thorough
def test_time_spent_on_one_finding_does_not_hide_the_next(executor: Executor) -> None:
    [entry] = plan(subject("two_terms", "token_mean", "kl", "entropy"), [terms.CHECK]).entries
    found = run_check(entry, executor, seconds=0.0).findings
    assert {report.finding.term for report in found} == {"kl", "entropy"}


def test_one_wrong_term_is_told_once(executor: Executor) -> None:
    about = subject("two_terms_alike", "token_mean", "kl", "entropy")
    [found] = outcome(executor, about, terms.CHECK).findings
    assert found.finding.term == "kl"


def test_a_finding_is_shown_once_it_is_confirmed_before_anything_else_is_looked_for(
    executor: Executor,
) -> None:
    about = subject("two_terms", "token_mean", "kl", "entropy")
    shown: list[tuple[str, int]] = []

    def emit(event: Event) -> None:
        if isinstance(event, ConfirmedFinding):
            assert event.report.confirmed
            shown.append((event.report.finding.code, executor.executed))
        elif isinstance(event, CheckStarted | CheckFinished):
            shown.append((type(event).__name__, executor.executed))

    examine(about, executor, emit, checks=[terms.CHECK, padding.CHECK])
    assert [what for what, _ in shown] == [
        "CheckStarted", "AGV207", "AGV207", "CheckFinished", "CheckStarted", "CheckFinished",
    ]  # fmt: skip
    first, second = shown[1:3]
    assert first[1] < second[1], "the first one waited until the second one was found"
