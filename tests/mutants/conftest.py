"""Corpus entries as they are verified; a check's reduced budget."""

from __future__ import annotations

import inspect

from aggverify.checks import CHECKS, Finding
from aggverify.checks.base import FORMULA
from aggverify.conventions import Offer, convention
from aggverify.diagnosis import Diagnosis
from aggverify.execution.claim import Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.planning.discovery import discovered
from aggverify.run.search.drawing import draws, search
from aggverify.run.search.runner import CheckRun
from aggverify.run.search.triage import explained
from tests.corpus import everything
from tests.corpus.base import Correct, Mutant

Told = tuple[Finding, Diagnosis | None]
EXAMPLES = 4


def subject_of(entry: Mutant | Correct, executor: Executor) -> Subject:
    """The corpus entry as ``aggverify check`` would verify it."""
    subject = Subject.of(
        Claim(
            target=entry.function,
            function=entry.function,
            convention=entry.convention,
            engine=entry.engine,
            mode=entry.mode,
            divisor=entry.divisor,
            claimed=frozenset(entry.claims),
            terms=_terms(entry),
            policy=entry.policy,
            offered=_offered(entry),
        )
    )
    executor.begin()
    return discovered(subject, executor)


def _terms(entry: Mutant | Correct) -> tuple[str, ...]:
    if entry.convention != "native":
        return ()
    parameters = inspect.signature(getattr(everything, entry.function)).parameters.values()
    return tuple(p.name for p in parameters if p.default is p.empty)[2:]


def _offered(entry: Mutant | Correct) -> tuple[str, ...]:
    how = convention(entry.convention)
    if not how.mode_is_argument:
        return ()
    parameters = inspect.signature(getattr(everything, entry.function)).parameters
    return how.modes(Offer(entry.function, tuple(parameters)))


def first_told(mutant: Mutant, executor: Executor) -> list[Told]:
    """Findings on stored cases (drawn ones where a check has none), until an expected code."""
    subject = subject_of(mutant, executor)
    told: list[Told] = []
    for check in CHECKS:
        space = check.space(subject)
        skipped = check.thorough or (subject.nonlinear and check.linear_only)
        if space is None or skipped:
            continue
        check_run = CheckRun(check, subject, space, executor, RunStatistics(), lambda: None)
        if check_run.stored_cases():
            finding = check_run.stored_failure()
        else:
            finding = check_run.run(examples=EXAMPLES)
        if finding is None:
            continue
        told.append((finding, explained(check_run, finding)))
        if finding.code in mutant.codes:
            break
        if check.aspect == FORMULA:
            subject = subject.knowing(trust_formula=False)
    return told


def every_finding(entry: Correct, executor: Executor, examples: int) -> list[Finding]:
    """Findings of all checks on stored cases and on a few drawn ones, but for what runs last."""
    subject = subject_of(entry, executor)
    found = []
    for check in CHECKS:
        space = check.space(subject)
        skipped = check.last or check.thorough or (subject.nonlinear and check.linear_only)
        if space is None or skipped:
            continue
        check_run = CheckRun(check, subject, space, executor, RunStatistics(), lambda: None)
        most = min(examples, check.max_examples or examples)
        found += [
            check_run.stored_failure(),
            search(draws(space, 0), check_run.submit, max_examples=most),
        ]
    return [finding for finding in found if finding is not None]
