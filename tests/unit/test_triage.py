"""What is said of a finding that does not come back, and of weights that no rule makes 0."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from msgspec import structs

from aggverify.checks import CHECKS, Finding, formula
from aggverify.diagnosis import WeightObservation, diagnose
from aggverify.errors import NotJudged
from aggverify.execution.deadline import OutOfTime
from aggverify.execution.executor import Executor
from aggverify.report.view_model import facts
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.outcome.verdict import ReportedFinding
from aggverify.run.search import entry_runner
from aggverify.run.search import triage as triage
from aggverify.run.search.runner import CheckRun
from aggverify.run.search.triage import Evidence, triage_finding
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.world import Fault
from tests import verdicts
from tests.unit.test_checks import PLAIN


class _Run:
    """A check's run, of which nothing but the subject and the check may be asked."""

    subject, check = PLAIN, CHECKS[0]


def _found() -> Finding:
    return verdicts.report(PLAIN).finding


def test_what_does_not_come_back_is_state_whatever_it_looks_like(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(triage, "_again", lambda run, finding: None)
    found = Evidence()
    run: CheckRun = _Run()  # type: ignore[assignment]
    told: list[Finding] = []
    triage_finding(run, replace(_found(), fault=None), found, told.append)
    assert found.confirmed is False and not told
    assert found.diagnosis is not None and found.diagnosis.bug is not None
    assert found.diagnosis.bug.name == "state-between-steps"


LOOPS = Fault("runaway", 0, "rank 0 did not finish within 9 s of processor time")


LOOPED = replace(_found(), fault=LOOPS, message=LOOPS.message)


class _Again:
    """The run of a check whose step shows a finding again by its number of the run."""

    subject, check = PLAIN, replace(CHECKS[0], as_found=True)

    def __init__(self, shows: Callable[[int], Finding | None]) -> None:
        self.shows, self.runs, self.executor = shows, 0, self

    def patient(self) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    def judge_again(self, case: Case) -> Finding | None:
        self.runs += 1
        return self.shows(self.runs)


def test_a_loop_that_comes_back_now_and_then_is_flaky_and_not_run_more_than_it_must(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(triage, "_again", lambda run, finding: None)
    run, found = _Again(lambda run: None if run % 3 else LOOPED), Evidence()
    triage_finding(run, LOOPED, found, lambda seen: None)  # type: ignore[arg-type]
    assert run.runs == 3 and found.confirmed
    assert found.flaky is not None and found.flaky.code == "AGV414"
    assert found.flaky.message.startswith("2 of 5 runs of this step failed: rank 0 did not finish")


def test_a_loop_that_never_comes_back_is_neither_a_finding_nor_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(triage, "_again", lambda run, finding: None)
    run = _Again(lambda run: None if run % 100 else LOOPED)
    with pytest.raises(NotJudged, match="in one of 26 runs of a step, rank 0 did not finish"):
        triage_finding(run, LOOPED, Evidence(), lambda seen: None)  # type: ignore[arg-type]


LEFT = Fault("diverged", 1, "ranks disagree on collective 1", size=2)
DISAGREE = replace(_found(), code="AGV404", fault=LEFT, message=LEFT.message)
WAIT = replace(DISAGREE, code="AGV405", fault=replace(LEFT, kind="blocked"))


def test_what_fails_every_time_is_not_flaky_in_however_many_ways_it_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(triage, "_again", lambda run, finding: WAIT)
    for name in ("needs_a_past", "explained", "located"):
        monkeypatch.setattr(triage, name, lambda *_: None)
    seen, found = list[Finding](), Evidence()
    run = _Again(lambda run: DISAGREE)
    triage_finding(run, DISAGREE, found, seen.append)  # type: ignore[arg-type]
    assert (found.confirmed, found.flaky, seen) == (True, None, [DISAGREE])
    found = Evidence()
    run = _Again(lambda run: DISAGREE if run % 10 else None)
    triage_finding(run, DISAGREE, found, seen.append)  # type: ignore[arg-type]
    assert found.confirmed and found.flaky is not None and seen == [DISAGREE]
    assert found.flaky.message.startswith("24 of 26 runs of this step failed: ranks disagree")


def test_a_smaller_case_is_looked_for_until_two_have_not_come_to_an_end(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Case] = []

    def findings(run: CheckRun, cases: Sequence[Case]) -> list[Finding | None]:
        tried.extend(cases)
        return [replace(LOOPED, case=case, code="AGV406") for case in cases]

    monkeypatch.setattr(CheckRun, "findings", findings)
    space = formula.CHECK.space(PLAIN)
    assert space is not None
    run = CheckRun(formula.CHECK, PLAIN, space, executor, RunStatistics())
    large = _weighing("1/111 1/11; 1/11111", [0.1] * 10).case
    assert run.smaller(replace(LOOPED, case=large)).case is large
    assert 2 <= len(tried) <= 3, "one, and then two at a time"


def test_state_is_said_before_any_other_cause() -> None:
    [verdict] = verdicts.written(verdicts.verdict()).verdicts
    [finding] = verdict.findings
    assert facts(structs.replace(finding, confirmed=False))[0].startswith(
        "seen once, not again in fresh"
    )
    assert not any("seen once" in line for line in facts(finding))


def test_a_sample_that_keeps_as_many_tokens_as_another_has_is_not_dropped() -> None:
    part = _weighing("1/111 1/1", [0.0, 0.0, 0.25, 0.25])
    seen = replace(_found(), fault=None, observed=None)
    diagnosis = diagnose(PLAIN, seen, [[part]])
    assert diagnosis is None or "samples" not in diagnosis.sentence
    whole = _weighing("1/111 1/1", [0.0, 0.0, 0.0, 0.25])
    diagnosis = diagnose(PLAIN, seen, [[whole]])
    assert diagnosis is not None and "samples" in diagnosis.sentence


def _weighing(text: str, weights: list[float]) -> WeightObservation:
    step = parse_step(text)
    case = Case(step, Layout.trivial(len(step.samples)), (1.0,) * step.num_response_tokens)
    bits = [bit for sample in step.samples for bit in sample.loss_mask]
    right = tuple(Fraction(bit, step.num_unmasked) for bit in bits)
    return WeightObservation(case, np.array(weights), right, None, (), None)


def test_an_end_left_out_is_no_moved_mask_unless_a_masked_token_has_a_weight() -> None:
    whole = _weighing("1/1111", [0.25, 0.25, 0.25, 0.0])
    told = diagnose(PLAIN, replace(_found(), fault=None, observed=None), [[whole]])
    assert told is not None and told.bug is not None
    assert told.bug.name == "edge-token-dropped"
    holed = _weighing("1/0111", [1 / 3, 1 / 3, 1 / 3, 0.0])
    told = diagnose(PLAIN, replace(_found(), fault=None, observed=None), [[whole, holed]])
    assert told is not None and told.bug is not None
    assert told.bug.name == "mask-shifted"


def test_no_bug_is_named_for_samples_of_weight_0_that_no_rule_foretells() -> None:
    def seen(text: str, gone: int) -> WeightObservation:
        step = parse_step(text)
        case = Case(step, Layout.trivial(len(step.samples)), (1.0,) * step.num_response_tokens)
        right = (Fraction(1, step.num_unmasked),) * step.num_unmasked
        weights = np.array([float(w) for w in right])
        start = step.offsets[gone]
        weights[start : start + step.samples[gone].response_length] = 0.0
        return WeightObservation(case, weights, right, None, (), None)

    observations = [seen("1/1; 1/11; 1/111", 1), seen("1/111; 1/11", 0), seen("1/11; 1/1; 1/1", 2)]
    told = diagnose(PLAIN, replace(_found(), fault=None, observed=None), [observations])
    assert told is not None
    assert told.sentence == "some samples have weight 0 and are silently left out"
    assert told.bug is None


class _OfVirtualRanks:
    """The run of a check whose findings real ranks have to confirm."""

    subject, check = PLAIN, next(check for check in CHECKS if check.confirming is not None)
    statistics = RunStatistics()


STOPPED = {
    "time": OutOfTime(),
    "ranks that cannot run": NotJudged("no memory"),
}


@pytest.mark.parametrize("confirmed", [True, False])
@pytest.mark.parametrize("stop", STOPPED.values(), ids=STOPPED)
def test_what_stops_an_explanation_takes_no_finding_away(
    stop: BaseException, confirmed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And makes none of what virtual ranks alone have shown."""

    def stops(run: CheckRun, finding: Finding, found: Evidence, seen: object) -> None:
        found.confirmed = confirmed or None
        raise stop

    monkeypatch.setattr(entry_runner, "triage_finding", stops)
    run: CheckRun = _OfVirtualRanks()  # type: ignore[assignment]
    run.statistics.observer.doubted.clear()
    reported: list[ReportedFinding] = []
    raises = isinstance(stop, OutOfTime) or not confirmed
    with pytest.raises(type(stop)) if raises else contextlib.nullcontext():
        entry_runner._look_into(run, _found(), reported, lambda event: None)
    assert len(reported) == confirmed
    doubted = not confirmed and isinstance(stop, OutOfTime)
    assert len(run.statistics.observer.doubted) == doubted
