"""Findings of other runs, each run again by its one case on the reducer of this command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from aggverify.codes.identity import Identity
from aggverify.codes.state import Again
from aggverify.errors import AggverifyError
from aggverify.execution.limits import RankKind
from aggverify.model import MAX_WEIGHTS, Replay
from aggverify.oracles import OracleError
from aggverify.run.outcome import store
from aggverify.run.outcome.store import StoredCase
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import split
from aggverify.run.replay import Replayed, ReplayOptions, replaying
from aggverify.world import Pool


@dataclass(frozen=True, slots=True)
class KnownFinding:
    """A finding of another run: what it is, and its case."""

    identity: Identity
    stored: StoredCase


def again(known: Iterable[KnownFinding], request: Request, *, pool: Pool) -> tuple[Replay, ...]:
    """Every finding that is about the request's reducer, once, whatever mode is asked for.

    Nothing that a case names is run: target, oracle, other path, engine and adapter are the
    request's.
    """
    mine = {k.stored.id: k for k in known if store.concerns(k.stored, request.target)}
    ordered = sorted(mine.values(), key=_ranks)
    found: list[Replay] = []
    for (target, ranks), group in groupby(ordered, key=_ranks):
        named = _named(request, target)
        options = ReplayOptions(
            named, request.oracle, request.against, request.engine, request.adapter
        )
        found += _together(tuple(group), options, ranks, pool=pool)
    return tuple(sorted(found, key=lambda replay: replay.id))


def _ranks(known: KnownFinding) -> tuple[str, RankKind]:
    """Return what findings must have in common to be run again by the same ranks."""
    return known.stored.whose[0], known.stored.claim.ranks


def _named(request: Request, whose: str) -> str:
    """Return the request's target with the function that the case was found on."""
    text = request.target
    return text if split(text)[1] else f"{text}:{whose.rpartition(':')[2]}"


def replay(
    known: KnownFinding,
    outcome: Again,
    code: str | None = None,
    words: str | None = None,
    observed: tuple[float, ...] | None = None,
) -> Replay:
    """Return the replay of a known finding, with what it came to."""
    return Replay(known.stored.id, known.identity, outcome, code, words, observed)


def _ran(one: KnownFinding, done: Replayed) -> Replay:
    found = done.finding
    if found is None:
        return replay(one, done.outcome, words=done.words)
    has_weights = found.case == one.stored.case and len(found.observed or ()) <= MAX_WEIGHTS
    return replay(
        one, done.outcome, found.code, done.words, found.observed if has_weights else None
    )


def _together(
    known: Sequence[KnownFinding], options: ReplayOptions, ranks: RankKind, *, pool: Pool
) -> Iterator[Replay]:
    try:
        with replaying(options, ranks, pool=pool) as run:
            for one in known:
                try:
                    done = run(one.stored)
                except (AggverifyError, OracleError) as error:
                    yield replay(one, Again.NOT_RUN, words=str(error))
                else:
                    yield _ran(one, done)
    except AggverifyError as error:
        yield from (replay(one, Again.NOT_RUN, words=str(error)) for one in known)
