"""What is run of a finding after it was made small, in this order.

Its case in fresh worlds, observations for the diagnosis, and the case with each field varied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from aggverify.checks import Finding
from aggverify.checks.determinism import flaky_finding, is_flaky
from aggverify.codes import Symptom
from aggverify.diagnosis import Diagnosis, recognised
from aggverify.diagnosis.observation import TOLERANCE
from aggverify.errors import NotJudged
from aggverify.execution.executed import Execution, Weights
from aggverify.execution.run_spec import as_run_spec
from aggverify.model import Suspect
from aggverify.run.outcome.verdict import Relevance
from aggverify.run.search.dedup import same_failure
from aggverify.run.search.drawing import draws
from aggverify.run.search.explaining import explain
from aggverify.run.search.failing import failure, skipped
from aggverify.run.search.locating import located
from aggverify.run.search.relevance import LOSS_VALUES, relevance
from aggverify.run.search.runner import CheckRun
from aggverify.steps.case import Case

SHORT = 64
"""Tokens of a step that forms are fitted to, where a check's own cases are long ones."""
DRAWN, HELD_OUT = 160, 24
"""Cases drawn for a diagnosis at most, and how many it must hold on as on the check's own."""
RUNS = 24
"""How often a step whose failure has not come back is run, to report how often it fails."""


@dataclass(slots=True)
class Evidence:
    """What these executions show, as far as they came."""

    confirmed: bool | None = None
    """Whether the finding came back in fresh worlds; None where that could not be tried."""
    diagnosis: Diagnosis | None = None
    relevance: Relevance = field(default_factory=Relevance)
    suspects: tuple[Suspect, ...] = ()
    flaky: Finding | None = None
    """The finding in its place, where some runs of its step failed and others passed."""


def triage_finding(
    run: CheckRun, finding: Finding, found: Evidence, on_confirmed: Callable[[Finding], None]
) -> None:
    """Confirm, explain and vary a finding of ``run``; what was found stays when that is stopped.

    ``on_confirmed``: called as soon as it is confirmed, before it is explained.

    Raises NotJudged for a finding that somebody else may have caused, and that does not come back.
    """
    again = _again(run, finding)
    found.confirmed = same_failure(finding, again)
    if not found.confirmed and finding.fault is not None and (signal := finding.fault.ended):
        raise NotJudged(f"ranks were ended by {signal}, which did not come back in fresh ones")
    ran_away = finding.fault is not None and finding.fault.kind == "runaway"
    if not found.confirmed and run.check.confirming is not None and not ran_away:
        return
    if not found.confirmed and (ran_away or is_flaky(finding.fault)):
        # Of a loop that did not come back, what came instead is no failure seen again. Any other
        # may show in several ways: ranks that wait, or that disagree, by who comes first.
        times, runs = int(again is not None and not ran_away), 0
        with run.executor.patient():
            # A loop without an end takes its whole limit each time: seen twice is enough.
            while runs < RUNS and not (ran_away and times):
                times += run.judge_again(finding.case) is not None
                runs += 1
        if ran_away and not times:
            # Not a finding, since a busy machine may have done it, and not a pass: its limit was
            # many times what the reducer takes.
            raise NotJudged(f"in one of {runs + 2} runs of a step, {finding.message}")
        found.confirmed = times > 0
        if times <= runs:
            if finding.fault is not None and skipped(finding.fault):
                # What its ranks issued shows that some left others waiting, however often that is.
                found.diagnosis = failure(run.subject, finding, run.executor)
            found.flaky = flaky_finding(finding, 1 + times, runs + 2)
            return
    if not found.confirmed and finding.fault is None:
        # These ranks are in another state: nothing that they show now explains it. Nor is a cause
        # named where the case now shows something else.
        if again is None:
            found.diagnosis = recognised(run.subject, finding, Symptom.STATE_KEPT)
        return
    if found.confirmed:
        on_confirmed(finding)
    past = needs_a_past(run, finding)
    found.diagnosis = (
        recognised(run.subject, finding, Symptom.STATE_KEPT) if past else explained(run, finding)
    )
    if not run.check.as_found:
        found.relevance = relevance(finding, run.space, run.findings)
    of_weights = finding.observed is not None and not run.subject.nonlinear
    if found.diagnosis is None and of_weights and LOSS_VALUES in found.relevance.matters:
        # Weights that change with the losses: what is not linear shows here as well, unless it
        # comes and goes with what was run before.
        steady = is_still_there(run, finding) and not is_gone_afresh(run, finding)
        symptom = Symptom.NOT_LINEAR if steady else Symptom.STATE_KEPT
        found.diagnosis = recognised(run.subject, finding, symptom)
    found.suspects = located(run, finding, found.diagnosis)


def confirm(run: CheckRun, finding: Finding) -> bool:
    """Whether the finding comes back in fresh worlds."""
    return same_failure(finding, _again(run, finding))


def _again(run: CheckRun, finding: Finding) -> Finding | None:
    """Return what is found on the finding's case in fresh worlds."""
    run.executor.fresh(run.confirming(finding.case))
    with run.executor.patient():
        return run.judge_again(finding.case)


def is_steady(run: CheckRun, finding: Finding) -> bool:
    """Whether it comes back in fresh ranks, in each by itself, and again in the same ones.

    If it does, with the same weights, it does not depend on what was run before.
    """
    again = _again(run, finding)
    if again is None or not same_failure(finding, again) or needs_a_past(run, finding):
        return False
    executions = run.executor.run(run.subject, run.check.variants(finding.case))
    later = run.check.judge(run.subject, executions)
    if later is None or later.observed is None or again.observed is None:
        return False
    return _same(np.array(again.observed), np.array(later.observed))


def is_still_there(run: CheckRun, finding: Finding) -> bool:
    """Whether it comes back in ranks with a past, run and not remembered."""
    executions = run.executor.run(run.subject, run.check.variants(finding.case))
    return same_failure(finding, run.check.judge(run.subject, executions))


def needs_a_past(run: CheckRun, finding: Finding) -> bool:
    """Whether the finding is stateful: it takes a run before.

    Where every variant has ranks that have run nothing, it is gone, or its weights are others.
    """
    afresh = _afresh(run, finding)
    if not afresh:
        return False
    again = run.check.judge(run.subject, afresh)
    if finding.traits.compares and again is None:
        return True
    if finding.observed is None:
        return False
    seen = np.array(finding.observed)
    if again is not None and again.observed is not None:
        return not _same(seen, np.array(again.observed))
    mine = [e.weights for e in afresh if e.case == finding.case and e.weights is not None]
    return bool(mine) and not any(_same(seen, weights) for weights in mine)


def _same(one: Weights, two: Weights) -> bool:
    return len(one) == len(two) and np.allclose(one, two, rtol=TOLERANCE, atol=0, equal_nan=True)


def is_gone_afresh(run: CheckRun, finding: Finding) -> bool:
    """Whether nothing is found where each of several variants has ranks that have run nothing."""
    afresh = _afresh(run, finding)
    return bool(afresh) and run.check.judge(run.subject, afresh) is None


def _afresh(run: CheckRun, finding: Finding) -> list[Execution]:
    """Its variants, where there are several, each in ranks that have run nothing.

    Empty where one comes to no result.
    """
    alone = [replace(as_run_spec(each), fresh=True) for each in run.check.variants(finding.case)]
    if len(alone) < 2:
        return []
    executions = run.executor.run(run.subject, alone)
    return executions if all(each.weights is not None for each in executions) else []


def explained(run: CheckRun, finding: Finding) -> Diagnosis | None:
    """Return what the candidate computes instead, from observations made for that purpose."""
    distinguishing_cases = run.check.distinguishing_cases
    own = [
        *run.stored_cases(),
        *(distinguishing_cases(run.subject) if distinguishing_cases is not None else ()),
    ]
    # On a few small cases many formulas give the same weights.
    space = run.check.draws(run.space)
    if run.check.stored is not None:
        own = [case for case in own if case.step.num_response_tokens <= SHORT]
        space = replace(space, lengths=(), holes=False)
    most = DRAWN if run.check.only is None else 0

    def more() -> Iterator[Case]:
        return islice(draws(space, run.subject.claim.seed), most)

    own += islice(more(), HELD_OUT)
    return explain(run.subject, finding, run.executor, own, more)
