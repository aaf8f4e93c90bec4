"""What a finding needs once more: fresh worlds, observations for the diagnosis, each field varied.

All executions that are made of a finding after it was found and made small, in their order.
"""

from __future__ import annotations

from dataclasses import dataclass

from aggverify.checks import Finding
from aggverify.codes import Symptom
from aggverify.diagnosis import Diagnosis, recognised
from aggverify.errors import NotJudged
from aggverify.run.outcome.verdict import Relevance
from aggverify.run.search.alike import same
from aggverify.run.search.check_run import CheckRun
from aggverify.run.search.explaining import explain
from aggverify.run.search.relevance import LOSS_VALUES, relevance


@dataclass(frozen=True, slots=True)
class Evidence:
    """What these executions say."""

    confirmed: bool
    """Whether the finding came back in fresh worlds."""
    diagnosis: Diagnosis | None
    relevance: Relevance


def gathered(run: CheckRun, finding: Finding) -> Evidence:
    """Confirm, explain and vary a finding of ``run``; raises NotJudged for one that somebody else
    may have caused, and that does not come back."""
    confirmed = confirm(run, finding)
    if not confirmed and finding.fault is not None and (signal := finding.fault.ended):
        raise NotJudged(f"ranks were ended by {signal}, which did not come back in fresh ones")
    diagnosis = explained(run, finding)
    as_found = run.check.as_found
    matters = Relevance() if as_found else relevance(finding, run.space, run.findings)
    if diagnosis is None and LOSS_VALUES in matters.matters:
        # Weights that change with the losses: what is not linear shows here as well.
        diagnosis = recognised(run.subject, finding, Symptom.NOT_LINEAR)
    return Evidence(confirmed, diagnosis, matters)


def confirm(run: CheckRun, finding: Finding) -> bool:
    """Whether the finding comes back in fresh worlds."""
    run.laboratory.fresh()
    with run.laboratory.patient():
        again = run.judge(finding.case)
    return same(finding, again)


def explained(run: CheckRun, finding: Finding) -> Diagnosis | None:
    """What the candidate computes instead, from observations made for that purpose."""
    telling = run.check.telling
    own = [*run.stored_cases(), *(telling(run.subject) if telling is not None else ())]
    return explain(run.subject, finding, run.laboratory, own)
