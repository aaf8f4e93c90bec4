"""``snapshot record`` and ``snapshot check``, from a target or a file to the lines to print."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from aggverify.errors import InputError
from aggverify.execution.claim import Claim, called_as
from aggverify.execution.executor import Executor
from aggverify.execution.limits import USUAL
from aggverify.execution.subject import Subject
from aggverify.files import resolved
from aggverify.run import opening
from aggverify.run.outcome import store
from aggverify.run.planning import project
from aggverify.run.planning.choosing import choose
from aggverify.run.planning.claims import terms
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import Target, is_path, parse_target, split
from aggverify.snapshot import taking
from aggverify.snapshot.comparing import ULPS, Level, Moved, compared
from aggverify.snapshot.file import NumericEnvironment, Snapshot
from aggverify.snapshot.pinned import EntryKey, PinnedEntry
from aggverify.world import Pool, Template

_ODD = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class Compared:
    """A snapshot next to what the reducer does now."""

    snapshot: Snapshot
    target: str
    """What was run."""
    environment: NumericEnvironment
    entries: tuple[Moved, ...]
    ulps: int = ULPS

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """Differences from the environment in which it was recorded."""
        return tuple(self.environment.differences(self.snapshot.environment))

    def at(self, *levels: Level) -> list[Moved]:
        """Return the entries of these levels."""
        return [moved for moved in self.entries if moved.level in levels]

    @property
    def fails(self) -> bool:
        """Whether it is not as recorded; what is near is a mere warning in another environment."""
        levels = {moved.level for moved in self.entries} - {Level.IDENTICAL}
        return any(not (level.is_near and self.elsewhere) for level in levels)


def file_name(target: str) -> str:
    """Where the snapshot of a target lies in its folder."""
    return f"{_ODD.sub('.', target.replace('.py:', '.')).strip('.')}.txt"


def record(request: Request, *, pool: Pool) -> Snapshot:
    """Return the reducer as it is now, under what is claimed of it; raises AggverifyError."""
    request, target = replace(request, oracle=None, against=None), parse_target(request.target)
    ranks = opening.placed(request, pool).ranks
    with opening.opened(pool, target.setup(), ranks=ranks, adapter=request.adapter) as template:
        subjects = opening.resolved(request, target, template)
        executor = Executor(template)
        executor.begin()
        entries: dict[EntryKey, PinnedEntry] = {}
        claims: dict[str, Claim] = {}
        for subject in subjects:
            ran = taking.steady(subject, executor)
            entries |= {key: taking.pinned(execution) for key, execution in ran.items()}
            claims[taking.mode_name(subject)] = subject.claim
        named = f"{store.file_of(request.target)}:{subjects[0].function}"
        return Snapshot(named, taking.environment(template.description), claims, entries)


def check(
    snapshot: Snapshot,
    target: str | None = None,
    engine: str | None = None,
    adapter: str | None = None,
    *,
    ulps: int = ULPS,
    pool: Pool,
) -> Compared:
    """Return the reducer of the snapshot, or another ``target``, next to the record.

    Raises AggverifyError where it cannot be run, or may not be: a snapshot is data. Of what it
    names, only a file in the project is run unasked, and never one's own engine or adapter.
    """
    wanted = parse_target(target or _found_again(snapshot.target))
    for claim in snapshot.claims.values():
        if ":" in claim.engine and claim.engine != engine:
            raise InputError(
                f"this snapshot was recorded under an engine of your own: say --engine "
                f"MODULE:OBJECT (it was {claim.engine!r:.200})"
            )
        if claim.adapter is not None and adapter is None:
            raise InputError(
                f"this snapshot was recorded through an adapter: say --adapter FILE (it was "
                f"{claim.adapter!r:.200})"
            )
    ranks = max((claim.ranks for claim in snapshot.claims.values()), default=USUAL)
    with opening.opened(pool, wanted.setup(), ranks=ranks, adapter=adapter) as template:
        executor = Executor(template)
        executor.begin()
        found: list[Moved] = []
        for mode, recorded in snapshot.by_mode().items():
            if mode in snapshot.claims:
                own = adapter if snapshot.claims[mode].adapter else None
                subject = _subject(snapshot.claims[mode], wanted, template, own)
                subject.must_reduce()
                ran = taking.run(subject, executor, taking.cases(subject))
                found += compared(subject, recorded, ran, ulps)
            else:
                found += [Moved(k, Level.ORPHANED, before=e) for k, e in recorded.items()]
        here = taking.environment(template.description)
    return Compared(snapshot, wanted.text, here, tuple(found), ulps)


def _subject(claim: Claim, target: Target, template: Template, adapter: str | None) -> Subject:
    """Return the subject of a recorded claim on the target as it is now."""
    choice = choose(target, template.description, claim.convention if adapter is None else adapter)
    mine = replace(
        claim,
        target=target.text,
        function=choice.function,
        terms=terms(choice),
        **called_as(choice.convention),
    )
    return Subject.of(mine)


def _found_again(target: str) -> str:
    """Return the target that a snapshot names, if it may be run although no option names it."""
    head, name = split(target)
    if not is_path(head):
        return target
    root = project.root(Path.cwd()).resolve()
    path = root / head
    if not resolved(path).is_relative_to(root):
        raise InputError(
            f"{target!r:.200}, which the snapshot names, does not lie in the project {root}: it is "
            f"run if you say so, by --target"
        )
    return f"{path}:{name}" if name else str(path)
