"""The verdict on one subject, and the exit code: decided here and nowhere else."""

from __future__ import annotations

import hashlib
import json
from base64 import b32encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from msgspec import structs

from aggverify import model
from aggverify.checks import Check, Finding
from aggverify.codes import Effect
from aggverify.codes.identity import Identity
from aggverify.codes.state import Incomplete, State
from aggverify.diagnosis import Diagnosis, merge_diagnoses, stated
from aggverify.execution.deadline import OutOfTime, TooLate
from aggverify.execution.subject import Subject
from aggverify.run.outcome.branch_coverage import BranchCoverage
from aggverify.run.outcome.extent import Extent
from aggverify.run.outcome.precedence import by_cause
from aggverify.run.outcome.store import StoredCase, about
from aggverify.run.planning.waiver import covers, may_cover


class Exit(IntEnum):
    """Exit codes of the command line."""

    CONFORMS = 0
    FINDINGS = 1
    NO_JUDGEMENT = 2
    INTERRUPTED = 130


DIMENSIONS = frozenset({"dp_size", "cp_size", "cp kind", "micro-batches", "dtype"})


@dataclass(frozen=True, slots=True)
class Relevance:
    """Which fields of a case a finding depends on; one that could not be varied is in neither."""

    matters: tuple[str, ...] = ()
    """With another value the finding went away, became another one, or another factor."""
    irrelevant: tuple[str, ...] = ()
    """With every other value that was tried the same finding came back, by the same factor."""

    @property
    def dimensions(self) -> tuple[str, ...]:
        """What matters of layout and precision: the rest is the case's, not the finding's."""
        return tuple(sorted(DIMENSIONS.intersection(self.matters)))


@dataclass(frozen=True, slots=True)
class ReportedFinding:
    """A finding ready to be shown: confirmed or not, explained as far as possible."""

    stored: StoredCase
    finding: Finding
    diagnosis: Diagnosis | None
    confirmed: bool | None
    """None where it was never run again: the command was stopped first."""
    relevance: Relevance = field(default_factory=Relevance)
    waived: str | None = None
    """For what reason a person accepts it."""
    call: model.Call | None = None
    """Where not even the simplest step was got through, and nothing else was run."""
    suspects: tuple[model.Suspect, ...] = ()
    """Where the mistake may stand, the likeliest place first; of a cause that is not named."""

    @property
    def fails(self) -> bool:
        """Whether it is a reason not to take the reducer."""
        return self.effect is Effect.FAILS and self.waived is None

    @property
    def signature(self) -> str:
        """What it has in common with the same finding on other cases.

        Code, check, what matters, and the factor, or else the formula or the ratio.
        """
        return self._signature(*filter(None, [stated(self.finding, self.diagnosis)]))

    def _signature(self, *form: str) -> str:
        """Hash it; without a form as older versions did, whose waivers still have to match."""
        factor = self.diagnosis.factor if self.diagnosis else None
        matters = sorted(self.relevance.matters)
        parts = [self.finding.code, self.finding.check, matters, factor, *form]
        digest = hashlib.sha256(json.dumps(parts).encode()).digest()
        return f"s-{b32encode(digest).decode()[:6].lower()}"

    @property
    def identity(self) -> Identity:
        """What makes it the same finding in another run."""
        factor = self.diagnosis.factor if self.diagnosis else None
        form = stated(self.finding, self.diagnosis)
        where = about(self.stored.claim)
        return Identity(where, self.finding.code, self.relevance.dimensions, factor, form)

    def is_covered(self, waiver: model.Waiver) -> bool:
        """Whether a waiver is for it."""
        return covers(waiver, self.finding.code, self.identity, self.stored.id, self.signature)

    def is_like(self, waiver: model.Waiver) -> bool:
        """Whether it may be what a waiver of an older version is for."""
        return may_cover(waiver, self.identity, self._signature())

    @property
    def effect(self) -> Effect:
        """What it does to the verdict, under its claim."""
        return self.stored.claim.effect(self.finding.traits)


def together(reports: Sequence[ReportedFinding]) -> tuple[ReportedFinding, ...]:
    """Return all reports, with one diagnosis for those whose weights one formula gives."""
    found = merge_diagnoses([(report.finding, report.diagnosis) for report in reports])
    pairs = zip(reports, found, strict=True)
    return tuple(replace(report, diagnosis=diagnosis) for report, diagnosis in pairs)


def summary(
    check: Check,
    cases: int,
    state: State,
    reason: str | None = None,
    *,
    refused: str | None = None,
    established: str | None = None,
    spoiled: bool = False,
    planned: int = 0,
) -> model.CheckRecord:
    """Return what a check did, as the document has it."""
    return model.CheckRecord(
        check.name,
        check.title,
        check.tests,
        cases,
        state,
        reason,
        refused,
        established,
        spoiled,
        planned,
    )


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """Everything one verification established."""

    subject: Subject
    reports: tuple[ReportedFinding, ...]
    checks: tuple[model.CheckRecord, ...]
    executed: int
    worlds: tuple[tuple[int, int], ...]
    """(world size, cases) in ascending order."""
    margins: tuple[model.Margin, ...]
    seed: int
    weaknesses: tuple[model.Warned, ...] = ()
    """What the run could not have seen; never a reason for another exit code."""
    cuts: tuple[model.Cut, ...] = ()
    """Checks whose search the clock has ended."""
    tried: model.Tried = Extent().tried
    """How far it went, also where nothing was found."""
    covered: BranchCoverage = field(default_factory=BranchCoverage)
    call_milliseconds: int | None = None
    """About what one call of a slow reducer takes by the clock; None for one that is not slow."""
    waivers: tuple[model.Waiver, ...] = ()
    """Everything that is accepted, whether it was found or not."""
    incomplete: Incomplete | None = None
    """What ended it before everything planned was judged."""

    @property
    def identified(self) -> bool:
        """Whether the mode was found out rather than declared."""
        return self.subject.found.identified

    @property
    def causes(self) -> tuple[tuple[ReportedFinding, ...], ...]:
        """Reports grouped by root cause; without a known one each stands alone."""
        return by_cause(self.reports)

    @property
    def exit(self) -> Exit:
        """Return the exit code.

        It conforms only when something was tested, all that had to be was judged, and nothing
        failed, under an engine that is the trainer's; a hazard is no failure.
        """
        if any(report.fails for report in self.reports):
            return Exit.FINDINGS
        # A check that a finding spoils is not open: the finding counts, or was accepted.
        left = any(c.state is State.NOT_JUDGED and not c.spoiled for c in self.checks)
        left = left or self.incomplete is not None
        if left or not self.executed or self.subject.engine_in_question:
            return Exit.NO_JUDGEMENT
        return Exit.CONFORMS

    def accepting(self, waivers: Iterable[model.Waiver]) -> RunVerdict:
        """Return the verdict with waivers applied: what is accepted is shown, and fails nothing.

        A baseline's waivers count only if they are about its subject.
        """
        mine = about(self.subject.claim)
        every = tuple(w for w in waivers if w.identity is None or w.identity.about == mine)
        of = [(w, covered(w, self.reports)[0]) for w in every]
        reports = tuple(
            replace(report, waived=next((w.reason for w, found in of if report in found), None))
            for report in self.reports
        )
        checks = tuple(_waived(check, reports) for check in self.checks)
        counts = tuple(counted(waiver, reports) for waiver in every)
        return replace(self, reports=reports, checks=checks, waivers=counts)


def _waived(check: model.CheckRecord, reports: Sequence[ReportedFinding]) -> model.CheckRecord:
    # What it finds on branches has the name of another.
    mine = [report for report in reports if report.finding.check == check.name] or reports
    waived = check.state is State.FAILED and not any(report.fails for report in mine)
    return structs.replace(check, state=State.WAIVED) if waived else check


def exit_code(verdicts: Sequence[RunVerdict]) -> Exit:
    """Return the code of a whole command: findings first, then anything untested.

    Or a waiver without a finding.
    """
    codes = {verdict.exit for verdict in verdicts}
    if any(verdict.incomplete is Incomplete.INTERRUPTED for verdict in verdicts):
        return Exit.INTERRUPTED
    if Exit.FINDINGS in codes:
        return Exit.FINDINGS
    if _has_unmatched(verdicts):
        return Exit.NO_JUDGEMENT
    return Exit.CONFORMS if codes == {Exit.CONFORMS} else Exit.NO_JUDGEMENT


def covered(
    waiver: model.Waiver, reports: Sequence[ReportedFinding]
) -> tuple[list[ReportedFinding], list[ReportedFinding]]:
    """Return the findings that a waiver is for, and those between which it is ambiguous.

    A waiver of an older version that may be for several different findings is for none of them.
    """
    if exact := [report for report in reports if report.is_covered(waiver)]:
        return exact, []
    like = [report for report in reports if report.is_like(waiver)]
    return (like, []) if len({report.identity for report in like}) < 2 else ([], like)


def counted(waiver: model.Waiver, reports: Sequence[ReportedFinding]) -> model.Waiver:
    """Return the waiver with how many of these findings it covers."""
    exact, like = covered(waiver, reports)
    ambiguous = tuple(f"{report.finding.code}:{report.signature}" for report in like)
    return structs.replace(waiver, findings=len(exact), ambiguous=ambiguous)


def _has_unmatched(verdicts: Sequence[RunVerdict]) -> bool:
    """Whether a waiver that is not a baseline's covers no finding of any verdict."""
    reports = [report for verdict in verdicts for report in verdict.reports]
    every = (waiver for verdict in verdicts for waiver in verdict.waivers)
    return any(w.identity is None and not covered(w, reports)[0] for w in every)


def why(stop: BaseException) -> Incomplete:
    """Return why a verdict is incomplete that this exception has ended."""
    if isinstance(stop, KeyboardInterrupt):
        return Incomplete.INTERRUPTED
    return Incomplete.OUT_OF_TIME if isinstance(stop, OutOfTime | TooLate) else Incomplete.STOPPED
