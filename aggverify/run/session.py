"""One ``check`` command from target to verdicts: subjects, a plan for each, a fold over it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggverify.checks import CHECKS, Check
from aggverify.errors import CandidateError, InputError
from aggverify.execution.laboratory import Laboratory
from aggverify.execution.limits import COMPILED
from aggverify.execution.subject import Subject
from aggverify.oracles import OracleError
from aggverify.run.outcome.accepting import accepted
from aggverify.run.outcome.consequences import Outcome, precision, remaining
from aggverify.run.outcome.events import Event, Finished, SubjectChosen, Waiting
from aggverify.run.outcome.tally import Tally
from aggverify.run.outcome.verdict import Verdict, together
from aggverify.run.planning.choosing import choose
from aggverify.run.planning.claims import completed, declaration, settings_note, subjects, terms
from aggverify.run.planning.discovery import discovered, identified
from aggverify.run.planning.engine import engine_settled
from aggverify.run.planning.plan import Plan, plan, share
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import Target, dotted_instead, parse_target
from aggverify.run.search.run_check import run_check
from aggverify.world import Pool, Template, TemplateFailure

HANDLER = "aggverify.trainer.training:Trainer"


Emit = Callable[[Event], None]


def verify(request: Request, emit: Emit, *, pool: Pool) -> tuple[Verdict, ...]:
    """Verify every mode asked for; raises AggverifyError when nothing can be judged."""
    verdicts = []
    with loaded(request, pool) as (found, laboratory):
        for subject in found:
            verdict = accepted(examine(subject, laboratory, emit), request.waivers)
            emit(Finished(verdict))
            verdicts.append(verdict)
    return tuple(verdicts)


def plans(request: Request, *, pool: Pool) -> tuple[Plan, ...]:
    """What :func:`verify` would run, one plan a subject; modes are found out, nothing is judged."""
    with loaded(request, pool) as (found, laboratory):
        return tuple(plan(prepared(s, laboratory)) for s in found)


def prepared(subject: Subject, laboratory: Laboratory) -> Subject:
    """The subject with all that has to be known before its checks can be planned."""
    laboratory.begin()
    subject = identified(subject, laboratory)
    return discovered(engine_settled(subject, laboratory), laboratory)


def examine(
    subject: Subject,
    laboratory: Laboratory,
    emit: Emit = lambda event: None,
    *,
    checks: Iterable[Check] = CHECKS,
    known: bool = False,
) -> Verdict:
    """Every check on one subject whose candidate is loaded already: a fold over its plan.

    ``known``: whether the subject is :func:`prepared` already.
    """
    executed, worlds = laboratory.executed, dict(laboratory.worlds)
    if subject.claim.compiled and not known:
        emit(Waiting("torch.compile compiles the first steps, in every rank"))
    subject = subject if known else prepared(subject, laboratory)
    entries = plan(subject, checks).entries
    emit(SubjectChosen(subject, len(entries)))
    outcomes: list[Outcome] = []
    tally = Tally()
    ends = time.monotonic() + subject.claim.budget.seconds
    for n, entry in enumerate(entries):
        seconds = (ends - time.monotonic()) * share(entries[n:])
        left = remaining(entry, outcomes)
        outcomes.append(run_check(left, laboratory, emit, seen=tally, seconds=seconds))
        tally = outcomes[-1].tally
    tally.sights.outlived = laboratory.outlived
    return Verdict(
        subject=subject.knowing(computes_in=precision(subject, outcomes)),
        reports=together([report for outcome in outcomes for report in outcome.findings]),
        checks=tuple(o.summary for o in outcomes),
        executed=laboratory.executed - executed,
        worlds=tuple((w, n - worlds.get(w, 0)) for w, n in sorted(laboratory.worlds.items())),
        margins=tally.margins(subject),
        seed=subject.claim.seed,
        weaknesses=tally.sights.weaknesses(subject),
        call_milliseconds=tally.pace.milliseconds,
    )


@contextmanager
def loaded(request: Request, pool: Pool) -> Iterator[tuple[tuple[Subject, ...], Laboratory]]:
    """The subjects of a request, and ranks that have imported them; raises AggverifyError."""
    target = parse_target(request.target)
    with (
        opened(pool, target.setup(), compiled=request.compiled) as template,
        other_path(pool, request.against) as other,
    ):
        found = resolved(request, target, template, other)
        try:
            beside = None if other is None else other.laboratory
            yield found, Laboratory(template, beside)
        except OracleError as error:
            # A person's own oracle can be wrong on any step.
            raise InputError(str(error)) from None


def resolved(
    request: Request, target: Target, template: Template, other: OtherPath | None = None
) -> tuple[Subject, ...]:
    """The subjects of a request, one a mode."""
    request = completed(request, template.description)
    found = subjects(request, target, template.description)
    if other is not None:
        found = tuple(other.beside(s, request.convention or "auto") for s in found)
    return tuple(s.noting(*settings_note(request)) for s in found)


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
        said = what is not None or subject.found.engine_said
        return subject.beside(
            subject.knowing(engine_said=said).claiming(
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
def opened(
    pool: Pool, setup: dict[str, str], paths: Sequence[str] = (), *, compiled: bool = False
) -> Iterator[Template]:
    """A template process that has imported the candidate; raises CandidateError if it cannot.

    ``paths`` come before everything on sys.path there.
    """
    template = pool.template(
        HANDLER,
        {"target": setup, "compile": compiled},
        paths=paths,
        more=COMPILED if compiled else None,
    )
    if isinstance(template, TemplateFailure):
        where = setup.get("path") or setup["module"]
        detail = f"\n{template.traceback.rstrip()}" if template.traceback else ""
        hint = ""
        if "relative import" in template.message and "path" in setup:
            command = dotted_instead(Path(setup["path"]), setup.get("name"))
            hint = f"\nthe file is part of a package: {command}" if command else ""
        raise CandidateError(f"cannot import {where}: {template.message}{detail}{hint}")
    try:
        yield template
    finally:
        template.close()
