"""Compare what the ranks of a world issued: every group's collectives must agree on its members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aggverify.world.collectives import SEPARATOR, Collective, read


@dataclass(frozen=True, slots=True)
class Trace:
    """The collectives of one rank in one job, in order, as it noted them.

    ``complete``: the rank finished the job. ``checksums`` stand for entries beyond those kept;
    ``sequences`` are the backend's own counts per group name, over the life of the world: the last
    one, and where jobs shared a dispatch those after each, as ``name/``.
    """

    entries: Sequence[str]
    complete: bool
    checksums: Mapping[str, int] = field(default_factory=dict)
    sequences: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def issued(self) -> list[str]:
        """Entries that are of a group.

        When an asynchronous one is waited for is no part of what ranks agree on.
        """
        return [entry for entry in self.entries if entry[:1] != SEPARATOR]

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """The entries as values."""
        return tuple(map(read, self.entries))


Calls = Mapping[int, Collective | None]
"""What ranks issued, None for one that issued no more."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Where ranks first differ: the rank at fault, a sentence, and what each rank issued there."""

    rank: int
    message: str
    calls: Calls = field(default_factory=dict)


def disagreement(traces: Mapping[int, Trace]) -> Disagreement | None:
    """Return the first disagreement, group by group; None when what is known is consistent."""
    if len(traces) == 1:
        return None
    first = next(iter(traces.values()))
    issued = first.issued
    if all(
        t.complete and t.issued == issued and t.checksums == first.checksums
        for t in traces.values()
    ):
        # The usual case, decided without looking into the entries.
        return _sequence_disagreement(traces)
    for (name, members), calls in _by_group(traces).items():
        found = _in_group(name, members, calls, traces)
        if found is not None:
            return found
    return _sequence_disagreement(traces)


def different(calls: Calls, what: str) -> Disagreement | None:
    """Compare the collectives that ranks wait in; None when all are the same."""
    return _odd_one_out({r: "none" if c is None else c.text for r, c in calls.items()}, what, calls)


Group = tuple[str, tuple[int, ...]]


def _by_group(traces: Mapping[int, Trace]) -> dict[Group, dict[int, list[Collective]]]:
    groups: dict[Group, dict[int, list[Collective]]] = {}
    for rank, trace in traces.items():
        for call in trace.collectives:
            if call.group:
                calls = groups.setdefault((call.group, call.ranks), {})
                calls.setdefault(rank, []).append(call)
    return groups


def _in_group(
    name: str,
    members: tuple[int, ...],
    issued: Mapping[int, Sequence[Collective]],
    traces: Mapping[int, Trace],
) -> Disagreement | None:
    here = [rank for rank in members if rank in traces]
    for position in range(max(map(len, issued.values()))):
        at: dict[int, Collective | None] = {}
        for rank in here:
            calls = issued.get(rank, ())
            if position < len(calls):
                at[rank] = calls[position]
            elif traces[rank].complete:
                at[rank] = None
        which = f"collective {position + 1} of ranks {_ranks(members)}"
        descriptions = {rank: "none" if call is None else call.call for rank, call in at.items()}
        found = _odd_one_out(descriptions, f"ranks disagree on {which}", at)
        if found is not None:
            return found
    sums = {r: str(traces[r].checksums.get(name, 0)) for r in here if traces[r].complete}
    what = f"later collectives of ranks {_ranks(members)} (checksums)"
    return _odd_one_out(sums, f"ranks disagree on {what}")


def _sequence_disagreement(traces: Mapping[int, Trace]) -> Disagreement | None:
    seen: dict[str, Sequence[int]] = {}
    complete = {rank: t.sequences for rank, t in traces.items() if t.complete}
    if all(
        seen.setdefault(name, counts) == counts
        for sequences in complete.values()
        for name, counts in sequences.items()
    ):
        return None
    for name in seen:
        mine = {rank: each[name] for rank, each in complete.items() if name in each}
        which = f"the number of collectives of ranks {_ranks(sorted(mine))}"
        # Counts may differ in number: a rank may have destroyed the group, or not made it yet.
        for number, counts in enumerate(zip(*mine.values(), strict=False)):
            descriptions = {rank: f"{n} issued" for rank, n in zip(mine, counts, strict=True)}
            job = f"{name}{number}" if name.endswith("/") else name
            found = _odd_one_out(descriptions, f"ranks disagree on {which} (group {job})")
            if found is not None:
                return found
    return None


def _odd_one_out(
    descriptions: Mapping[int, str], what: str, calls: Calls | None = None
) -> Disagreement | None:
    """Return the disagreement between ranks' descriptions, None when all are the same."""
    at: dict[str, list[int]] = {}
    for rank, text in descriptions.items():
        at.setdefault(text, []).append(rank)
    if len(at) < 2:
        return None
    calls = calls or {}
    texts = [text + _place(calls.get(ranks[0])) for text, ranks in at.items()]
    ranks = list(at.values())
    return Disagreement(_rank_at_fault(ranks), _worded(what, texts, ranks), calls)


def _place(call: Collective | None) -> str:
    return f" at {call.place}" if call is not None and call.place else ""


def _rank_at_fault(ranks: Sequence[Sequence[int]]) -> int:
    """Return the first rank of the smallest set; of sets of one size, not of the lowest rank's."""
    lowest = min(map(min, ranks))
    return min(ranks, key=lambda same_ranks: (len(same_ranks), lowest in same_ranks, same_ranks))[0]


def _worded(what: str, texts: Sequence[str], ranks: Sequence[Sequence[int]]) -> str:
    parts = sorted(zip(ranks, texts, strict=True))
    return f"{what}: " + "; ".join(f"{_named(same_ranks)}: {text}" for same_ranks, text in parts)


def _ranks(ranks: Sequence[int]) -> str:
    return ",".join(map(str, ranks))


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {_ranks(ranks)}"
