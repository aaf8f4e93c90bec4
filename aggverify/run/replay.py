"""Run one stored counterexample again, exactly as it was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from aggverify.checks import Check, Finding, check
from aggverify.checks.refusal import refusal
from aggverify.codes import CODES, Effect
from aggverify.codes.state import Again
from aggverify.errors import InputError
from aggverify.execution.claim import Claim, called_as
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Executor
from aggverify.execution.limits import RankKind
from aggverify.execution.subject import Refused, Subject
from aggverify.execution.term_readings import given_readings
from aggverify.generation.space import Space
from aggverify.run.export import Export, export
from aggverify.run.opening import OtherPath, opened, other_path
from aggverify.run.outcome import store
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.outcome.store import StoredCase
from aggverify.run.planning.choosing import choose
from aggverify.run.planning.claims import terms
from aggverify.run.planning.discovery import discovered
from aggverify.run.planning.target import Target, parse_target
from aggverify.run.search.runner import CheckRun
from aggverify.steps.dimensions import BY_FEATURE
from aggverify.world import Fault, Pool, Printed, Template


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of it: the same finding, another one, or none."""

    stored: StoredCase
    subject: Subject
    finding: Finding | None
    failure: Fault | None = None
    """Without a finding: why the target did not get through every step of it."""
    refused: str | None = None
    """In the target's words, where a refusal is as good as the right result."""
    executions: int = 0
    declined: Refused | None = None
    """What the case has and the target declines as a whole: it cannot be judged."""
    printed: Printed = field(default_factory=Printed)
    """By the first rank, while the case was run."""
    exported: Export | None = None
    """Where that was asked, and can be."""
    not_exported: str | None = None
    """Why it cannot be."""

    @property
    def outcome(self) -> Again:
        """In one word. A refusal is distinguished from the right result."""
        if self.finding is not None:
            failing = self.subject.claim.effect(self.finding.traits) is Effect.FAILS
            return Again.FAILS if failing else Again.HAZARD
        if self.declined is not None or self.refused is not None:
            return Again.REFUSED
        return Again.PASSES if self.fixed else Again.NOT_RUN

    @property
    def words(self) -> str | None:
        """Why there is neither a finding nor a result."""
        if self.declined is not None:
            return f"{self.declined.what}: '{self.declined.words}'"
        return self.refused or (None if self.failure is None else self.failure.message)

    @property
    def fixed(self) -> bool:
        """Whether the target got through the case's steps and all is well."""
        known = self.finding is None and self.failure is None and self.declined is None
        return known and self.executions > 0


def replay(
    stored: StoredCase,
    target_text: str | None = None,
    oracle: str | None = None,
    against: str | None = None,
    engine: str | None = None,
    adapter: str | None = None,
    *,
    pool: Pool,
    exports: bool = False,
) -> Replayed:
    """Judge the stored case on a target (the one it was found on by default).

    ``oracle``: the person's own mode, if the case was found with one; never taken from the case
    file, which is data. ``against``: the other path, likewise, and ``engine`` and ``adapter``: a
    person's own. ``exports``: whether it is also wanted as data, to be run without aggverify.
    """
    options = ReplayOptions(
        target_text or store.found_again(stored), oracle, against, engine, adapter
    )
    options.is_enough(stored)
    with replaying(options, stored.claim.ranks, pool=pool, exports=exports) as again:
        return again(stored)


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Options of a stored case that only a person can give: which files may be run for it."""

    target: str
    oracle: str | None = None
    against: str | None = None
    engine: str | None = None
    adapter: str | None = None

    def is_enough(self, stored: StoredCase) -> None:
        """Raise InputError where the case needs more."""
        claim = stored.claim
        if check(stored.check).compares_paths and self.against is None:
            raise InputError("this case was found by comparing two paths: say --against TARGET")
        if claim.oracle is not None and self.oracle is None:
            raise InputError(
                f"this case was found with a mode of your own: say --oracle FILE (it was "
                f"{claim.oracle!r:.200})"
            )
        if claim.adapter is not None and self.adapter is None:
            raise InputError(
                f"this case was found through an adapter: say --adapter FILE (it was "
                f"{claim.adapter!r:.200})"
            )
        for named in filter(None, (claim, claim.against if self.against else None)):
            if ":" in named.engine and named.engine != self.engine:
                raise InputError(
                    f"this case was found under an engine of your own: say --engine MODULE:OBJECT "
                    f"(it was {named.engine!r:.200})"
                )


@contextmanager
def replaying(
    options: ReplayOptions, ranks: RankKind, *, pool: Pool, exports: bool = False
) -> Iterator[Callable[[StoredCase], Replayed]]:
    """Ranks that have imported the target, and what judges a stored case on it."""
    target = parse_target(options.target)
    with (
        opened(pool, target.setup(), ranks=ranks, adapter=options.adapter) as template,
        other_path(pool, options.against, adapter=options.adapter, backend=ranks.backend) as other,
    ):

        def again(stored: StoredCase) -> Replayed:
            options.is_enough(stored)
            return _judged(stored, options, target, template, other, exports=exports)

        yield again


def _judged(
    stored: StoredCase,
    options: ReplayOptions,
    target: Target,
    template: Template,
    other: OtherPath | None,
    *,
    exports: bool,
) -> Replayed:
    claim = stored.claim
    choice = choose(target, template.description, _called(claim, options))
    mine = replace(
        claim,
        target=target.text,
        function=choice.function,
        terms=terms(choice, given_readings(claim.terms)),
        oracle=options.oracle,
        **called_as(choice.convention),
        against=None,
    )
    subject = Subject.of(mine)
    executor = Executor(template, None if other is None else other.executor)
    if other is not None:
        known = claim.against
        if known is None:
            subject = other.with_other_path(subject, _called(claim, options))
        else:
            same = known.engine if options.against == known.target else None
            subject = other.with_other_path(subject, _called(known, options), same)
    subject = discovered(subject, executor).knowing(trust_formula=stored.trust_formula)
    broken = check(stored.check)
    space = broken.space(subject) or Space()
    check_run = CheckRun(broken, subject, space, executor, RunStatistics())
    executor.printed.clear()
    with executor.patient():
        finding = check_run.judge(stored.case)
    printed = replace(executor.printed)
    refused = check_run.refusals[-1] if check_run.refusals else None
    failures = [] if refused else check_run.failures
    failure = failures[0] if failures and finding is None else None
    if finding is not None and (declined := _declined(subject, finding)) is not None:
        return Replayed(stored, check_run.subject, None, declined=declined, printed=printed)
    subject, executions = check_run.subject, check_run.executions
    found = Replayed(stored, subject, finding, failure, refused, executions, printed=printed)
    if exports and (finding is not None or found.fixed):
        return _exported(found, executor, broken)
    return found


def _exported(found: Replayed, executor: Executor, check: Check) -> Replayed:
    """With its case as data, or why it is none."""
    subject, stored = found.subject, found.stored
    about = stored.code if found.finding is None else found.finding.code
    words = f"{about} {CODES[about].title}" if about in CODES else about
    how = f"mode {subject.claim.mode}, engine {subject.engine.name}, {stored.case.dtype}"
    title = f"{words}: {subject.target}, {how}"
    try:
        with executor.patient():
            made = export(subject, executor, check, stored.case, found.finding, title)
    except InputError as error:
        return replace(found, not_exported=str(error))
    return replace(found, exported=made)


def _called(claim: Claim, options: ReplayOptions) -> str:
    """How the reducer was called: by a file only if the person names it."""
    return claim.convention if claim.adapter is None else options.adapter or claim.convention


def _declined(subject: Subject, finding: Finding) -> Refused | None:
    """Return what the target declines, where that is all there is to the finding."""
    for one in subject.refused:
        dimension = BY_FEATURE[one.feature]
        concerned = dimension.concerned(finding.case)
        execution = Execution(finding.case, failure=finding.fault)
        if one.feature not in subject.claimed and dimension.size(finding.case) > one.beyond:
            return one if refusal(execution, concerned) is not None else None
    return None
