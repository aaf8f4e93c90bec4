"""Compare what the ranks of a world issued: every group's collectives must agree on its members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Trace:
    """The collectives of one rank in one job, in order.

    ``complete``: the rank finished the job. ``checksums`` stand for entries beyond those kept;
    ``sequences`` are the backend's own counts per group name, over the life of the world; where
    jobs shared a dispatch also those after each, as ``name/job``.
    """

    entries: Sequence[str]
    complete: bool
    checksums: Mapping[str, int] = field(default_factory=dict)
    sequences: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Where ranks first part: the odd one out, and a sentence."""

    rank: int
    message: str


def disagreement(traces: Mapping[int, Trace]) -> Disagreement | None:
    """The first disagreement, group by group; None when what is known is consistent."""
    first = next(iter(traces.values()))
    if all(
        t.complete and t.entries == first.entries and t.checksums == first.checksums
        for t in traces.values()
    ):
        # The usual case, decided without looking into the entries.
        return _sequence_disagreement(traces)
    for (name, members), issued in _by_group(traces).items():
        found = _in_group(name, members, issued, traces)
        if found is not None:
            return found
    return _sequence_disagreement(traces)


def readable(entry: str) -> str:
    """``all_reduce SUM float32[4] of ranks 0,1`` from a trace entry."""
    if entry.count("|") < 2:
        return entry  # not written by the tracer
    _, ranks, what, *_ = entry.split("|", 3)
    return f"{what} of ranks {ranks}" if ranks else what


# What was issued, and the line that did.
_Call = tuple[str, str]


def _by_group(
    traces: Mapping[int, Trace],
) -> dict[tuple[str, tuple[int, ...]], dict[int, list[_Call]]]:
    groups: dict[tuple[str, tuple[int, ...]], dict[int, list[_Call]]] = {}
    for rank, trace in traces.items():
        for entry in trace.entries:
            if entry.count("|") < 2 or entry.startswith("|"):
                continue
            name, ranks, what, *where = entry.split("|", 3)
            members = tuple(int(r) for r in ranks.split(","))
            calls = groups.setdefault((name, members), {}).setdefault(rank, [])
            calls.append((what, "".join(where)))
    return groups


def _in_group(
    name: str,
    members: tuple[int, ...],
    issued: Mapping[int, Sequence[_Call]],
    traces: Mapping[int, Trace],
) -> Disagreement | None:
    here = [rank for rank in members if rank in traces]
    longest = max(len(calls) for calls in issued.values())
    for position in range(longest):
        at: dict[str, list[int]] = {}
        places: dict[str, str] = {}
        for rank in here:
            calls = issued.get(rank, ())
            if position < len(calls):
                what, where = calls[position]
                at.setdefault(what, []).append(rank)
                places.setdefault(what, f" at {where}" if where else "")
            elif traces[rank].complete:
                at.setdefault("", []).append(rank)
        if len(at) > 1:
            which = f"collective {position + 1} of ranks {_ranks(members)}"
            return _worded(f"ranks disagree on {which}", at, places)
    sums: dict[str, list[int]] = {}
    for rank in here:
        if traces[rank].complete:
            total = str(traces[rank].checksums.get(name, 0))
            sums.setdefault(total, []).append(rank)
    if len(sums) > 1:
        return _worded(
            f"ranks disagree on later collectives of ranks {_ranks(members)} (checksums)", sums
        )
    return None


def _sequence_disagreement(traces: Mapping[int, Trace]) -> Disagreement | None:
    first = next(iter(traces.values()))
    if all(t.complete and t.sequences == first.sequences for t in traces.values()):
        return None
    counts: dict[str, dict[str, list[int]]] = {}
    for rank, trace in traces.items():
        if trace.complete:
            for name, count in trace.sequences.items():
                counts.setdefault(name, {}).setdefault(f"{count} issued", []).append(rank)
    for name, at in counts.items():
        if len(at) > 1:
            members = sorted(r for ranks in at.values() for r in ranks)
            which = f"the number of collectives of ranks {_ranks(members)} (group {name})"
            return _worded(f"ranks disagree on {which}", at)
    return None


def different(said: Mapping[int, str], what: str) -> Disagreement | None:
    """The odd one out of what each rank says, None when all say the same."""
    at: dict[str, list[int]] = {}
    for rank, text in said.items():
        at.setdefault(text, []).append(rank)
    return _worded(what, at) if len(at) > 1 else None


def _worded(
    what: str, at: Mapping[str, list[int]], places: Mapping[str, str] | None = None
) -> Disagreement:
    # The fewest are the odd ones out; among as many, those that do not agree with the lowest.
    lowest = min(rank for ranks in at.values() for rank in ranks)
    odd = min(at.values(), key=lambda ranks: (len(ranks), lowest in ranks, ranks))
    parts = sorted((ranks, text) for text, ranks in at.items())
    told = "; ".join(
        f"{_named(ranks)}: {text or 'none'}{(places or {}).get(text, '')}" for ranks, text in parts
    )
    return Disagreement(odd[0], f"{what}: {told}")


def _ranks(ranks: Sequence[int]) -> str:
    return ",".join(map(str, ranks))


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {_ranks(ranks)}"
