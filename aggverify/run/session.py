"""One ``check`` command from target to verdicts: subjects, checks in order, events."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from aggverify.checks import CHECKS, Check, Finding
from aggverify.checks.base import FORMULA
from aggverify.codes import Code
from aggverify.errors import CandidateError, InputError
from aggverify.execution.laboratory import Laboratory
from aggverify.execution.limits import LIMITS
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space, sizes
from aggverify.oracles import OracleError
from aggverify.run.outcome import store
from aggverify.run.outcome.events import (
    CheckFinished,
    CheckStarted,
    Event,
    Finished,
    Found,
    Progress,
    SubjectChosen,
)
from aggverify.run.outcome.tally import Tally
from aggverify.run.outcome.verdict import CheckSummary, ReportedFinding, Verdict
from aggverify.run.planning.claims import completed, declaration, settings_note, subjects, terms
from aggverify.run.planning.discovery import discovered, identified
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import Target, choose, parse_target
from aggverify.run.search.check_run import CheckRun
from aggverify.run.search.evidence import gathered
from aggverify.steps.layouts import Layout
from aggverify.world import Pool, Template, TemplateFailure

HANDLER = "aggverify.trainer.training:Trainer"


def verify(request: Request, emit: Callable[[Event], None]) -> tuple[Verdict, ...]:
    """Verify every mode asked for; raises AggverifyError when nothing can be judged."""
    target = parse_target(request.target)
    try:
        return _verified(request, target, emit)
    except OracleError as error:
        # A person's own oracle can be wrong on any step.
        raise InputError(str(error)) from None


def _verified(
    request: Request, target: Target, emit: Callable[[Event], None]
) -> tuple[Verdict, ...]:
    with (
        Pool(LIMITS) as pool,
        opened(pool, target.setup()) as template,
        other_path(pool, request.against) as other,
    ):
        request = completed(request, template.description)
        laboratory = Laboratory(template, None if other is None else other.laboratory)
        verdicts = []
        chosen = tuple(
            s.noting(*settings_note(request))
            for s in subjects(request, target, template.description)
        )
        if other is not None:
            chosen = tuple(other.beside(s, request.convention or "auto") for s in chosen)
        for subject in chosen:
            verdict = examine(request, subject, laboratory, emit)
            emit(Finished(verdict))
            verdicts.append(verdict)
        return tuple(verdicts)


def examine(
    request: Request, subject: Subject, laboratory: Laboratory, emit: Callable[[Event], None]
) -> Verdict:
    """Every check on one subject whose candidate is loaded already."""
    return _Run(request, subject, laboratory, emit).verdict()


@dataclass(frozen=True, slots=True)
class OtherPath:
    """The target of ``--against``, loaded in a template process of its own."""

    target: Target
    description: Mapping[str, Any]
    laboratory: Laboratory

    def beside(self, subject: Subject, how: str, what: str | None = None) -> Subject:
        """The subject with this path to agree with, called as ``how``: same mode; the engine
        ``what``, or its own if it declares one or is called otherwise."""
        choice = choose(self.target, self.description, how)
        what = what or declaration(self.description).get("engine")
        if what is None and choice.convention.name != subject.convention.name:
            what = choice.convention.default_engine(subject.mode)
        return subject.beside(
            subject.claiming(
                target=self.target.text,
                function=choice.function,
                terms=terms(choice),
                convention=choice.convention.name,
                engine=what or subject.claim.engine,
            )
        )


@contextmanager
def other_path(pool: Pool, text: str | None) -> Iterator[OtherPath | None]:
    """The other path's template process, if one was asked for."""
    if text is None:
        yield None
        return
    target = parse_target(text)
    with opened(pool, target.setup()) as template:
        yield OtherPath(target, template.description, Laboratory(template))


@contextmanager
def opened(pool: Pool, setup: dict[str, str]) -> Iterator[Template]:
    """A template process that has imported the candidate; raises CandidateError if it cannot."""
    template = pool.template(HANDLER, {"target": setup})
    if isinstance(template, TemplateFailure):
        where = setup.get("path") or setup["module"]
        detail = f"\n{template.traceback.rstrip()}" if template.traceback else ""
        raise CandidateError(f"cannot import {where}: {template.message}{detail}")
    try:
        yield template
    finally:
        template.close()


@dataclass(slots=True)
class _Run:
    """The checks of one subject."""

    request: Request
    subject: Subject
    laboratory: Laboratory
    emit: Callable[[Event], None]

    def verdict(self) -> Verdict:
        """Identify if need be, run every check, sum up."""
        executed, worlds = self.laboratory.executed, dict(self.laboratory.worlds)
        self.laboratory.begin()
        any_engine = self.request.engine is None
        self.subject = identified(self.subject, self.laboratory, any_engine=any_engine)
        self.subject = discovered(self.subject, self.laboratory)
        self.emit(SubjectChosen(self.subject, len(CHECKS)))
        tally = Tally()
        reports: list[ReportedFinding] = []
        summaries: list[CheckSummary] = []
        ends = time.monotonic() + self.request.budget.seconds
        for n, check in enumerate(CHECKS):
            share = (ends - time.monotonic()) / (len(CHECKS) - n)
            summary, report = self._check(check, summaries, reports, tally, share)
            summaries.append(summary)
            reports += [report] if report else []
        return Verdict(
            subject=self.subject,
            reports=tuple(reports),
            checks=tuple(summaries),
            executed=self.laboratory.executed - executed,
            worlds=tuple(
                (w, n - worlds.get(w, 0)) for w, n in sorted(self.laboratory.worlds.items())
            ),
            margins=tally.margins(self.subject),
            seed=self.request.seed,
            weaknesses=tally.sights.weaknesses(self.subject),
        )

    def _check(
        self,
        check: Check,
        done: list[CheckSummary],
        reports: list[ReportedFinding],
        tally: Tally,
        seconds: float,
    ) -> tuple[CheckSummary, ReportedFinding | None]:
        failed = {c.name for c in done if c.failed}
        stuck = [r.finding.case.layout for r in reports if r.finding.traits.costs_a_world]
        space = _without(check.space(self.subject), stuck)
        codes = [r.finding.traits for r in reports]
        wrong = {c.aspect for c in CHECKS if c.name in failed}.union(*(c.spoils for c in codes))
        skipped = self._why_left_out(check, space, failed) or _why_skipped(
            check, space, wrong, codes
        )
        if skipped is not None or space is None:
            self.emit(CheckFinished(check.name, 0, False, skipped))
            return CheckSummary(check.name, check.title, check.tests, 0, False, skipped), None
        if wrong.intersection(check.alone_after):
            space = replace(space, max_dp=1, max_cp=1, max_microbatches=1, min_units=1, min_world=1)
        subject = self.subject.knowing(trust_formula=FORMULA not in wrong)
        self.emit(CheckStarted(check.name, check.title))
        check_run = CheckRun(
            check,
            subject,
            space,
            self.laboratory,
            tally,
            lambda: self.emit(Progress(check.name, self.laboratory.executed, len(reports))),
        )
        unlimited = check.only is not None and self.request.max_time is None
        deadline = math.inf if unlimited else time.monotonic() + seconds
        finding = check_run.run(
            examples=min(self.request.budget.examples, check.max_examples or 10**9),
            seed=self.request.seed,
            deadline=deadline,
        )
        passed = finding is None and check_run.complete
        if finding is None and check.only is None and time.monotonic() > deadline:
            tally.sights.cut_short.append(check.name)
        report = self._report(check_run, finding) if finding else None
        fails = report is not None and report.fails
        summary = CheckSummary(
            check.name,
            check.title,
            check.tests,
            check_run.cases,
            fails,
            None if check_run.complete or report else "stopped by --max-time: not all of its cases",
            check.establishes(subject, check_run.cases) if passed and check.establishes else None,
            check_run.refused,
        )
        self.emit(CheckFinished(check.name, check_run.cases, fails))
        return summary, report

    def _why_left_out(self, check: Check, space: Space | None, failed: set[str]) -> str | None:
        """What was asked for leaves a check out, if the subject's claims do not already."""
        if space is not None and self.subject.nonlinear and check.linear_only:
            return "says nothing about a non-linear objective"
        if space is not None and check.thorough and self.request.profile != "thorough":
            return "only with --profile thorough"
        if check.last and failed:
            return "not judged: other checks fail already"
        return None

    def _report(self, check_run: CheckRun, finding: Finding) -> ReportedFinding:
        found = gathered(check_run, finding)
        report = ReportedFinding(
            store.stored_case(check_run.subject, finding),
            finding,
            found.diagnosis,
            found.confirmed,
            found.relevance,
        )
        self.emit(Found(report))
        return report


def _without(space: Space | None, stuck: Sequence[Layout]) -> Space | None:
    """The space without the dimensions in which ranks wait for each other in vain already: each
    such step costs a world of ranks, and says nothing new."""
    if space is None or not stuck:
        return space
    dp, cp = (any(getattr(lay, name) > 1 for lay in stuck) for name in ("dp_size", "cp_size"))
    return replace(space, max_dp=1 if dp else space.max_dp, max_cp=1 if cp else space.max_cp)


def _why_skipped(
    check: Check, space: Space | None, wrong: Collection[str], codes: Sequence[Code]
) -> str | None:
    if any(code.ends_the_run for code in codes):
        return "not judged: the reducer does not get through a step"
    if any(code.unsteady for code in codes):
        return "not judged: results depend on more than the step"
    if space is None:
        return check.unclaimed
    if not sizes(space) and any(code.costs_a_world for code in codes):
        return "not judged: ranks wait for each other in vain already"
    if not sizes(space):
        return f"no such layout on {space.max_world} rank{'s' * (space.max_world > 1)}"
    unmet = [need.otherwise for need in check.needs if need.aspect in wrong]
    if unmet:
        return f"not judged: {unmet[0]}"
    return None
