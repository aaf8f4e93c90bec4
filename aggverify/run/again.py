"""Findings of other runs, each run again by its one case on the reducer of this command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from aggverify.codes.identity import Identity
from aggverify.codes.state import Again
from aggverify.errors import AggverifyError
from aggverify.execution.limits import RankKind
from aggverify.oracles import OracleError
from aggverify.run.outcome import store
from aggverify.run.outcome.store import StoredCase
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import split
from aggverify.run.replay import Replayed, Said, replaying
from aggverify.world import Pool


@dataclass(frozen=True, slots=True)
class Known:
    """A finding of another run: what it is, and its case."""

    identity: Identity
    stored: StoredCase


@dataclass(frozen=True, slots=True)
class Rerun:
    """What became of it."""

    known: Known
    outcome: Again
    code: str | None = None
    """What it shows now."""
    words: str | None = None
    observed: tuple[float, ...] | None = None
    """The weights of its case now, where they are wrong."""


def again(known: Iterable[Known], request: Request, *, pool: Pool) -> tuple[Rerun, ...]:
    """Every finding that is about the request's reducer, once, whatever mode is asked for.

    Nothing that a case names is run: target, oracle, other path, engine and adapter are the
    request's.
    """
    mine = {k.stored.id: k for k in known if store.concerns(k.stored, request.target)}
    ordered = sorted(mine.values(), key=_ranks)
    found: list[Rerun] = []
    for (target, ranks), group in groupby(ordered, key=_ranks):
        named = _named(request, target)
        said = Said(named, request.oracle, request.against, request.engine, request.adapter)
        found += _together(tuple(group), said, ranks, pool=pool)
    return tuple(sorted(found, key=lambda rerun: rerun.known.stored.id))


def _ranks(known: Known) -> tuple[str, RankKind]:
    """What has to be the same for the same ranks to do."""
    return known.stored.whose[0], known.stored.claim.ranks


def _named(request: Request, whose: str) -> str:
    """The request's target with the function that the case was found on."""
    text = request.target
    return text if split(text)[1] else f"{text}:{whose.rpartition(':')[2]}"


def _ran(one: Known, done: Replayed) -> Rerun:
    found = done.finding
    if found is None:
        return Rerun(one, done.outcome, words=done.words)
    seen = found.observed if found.case == one.stored.case else None
    return Rerun(one, done.outcome, found.code, done.words, seen)


def _together(
    known: Sequence[Known], said: Said, ranks: RankKind, *, pool: Pool
) -> Iterator[Rerun]:
    try:
        with replaying(said, ranks, pool=pool) as run:
            for one in known:
                try:
                    done = run(one.stored)
                except (AggverifyError, OracleError) as error:
                    yield Rerun(one, Again.NOT_RUN, words=str(error))
                else:
                    yield _ran(one, done)
    except AggverifyError as error:
        yield from (Rerun(one, Again.NOT_RUN, words=str(error)) for one in known)
