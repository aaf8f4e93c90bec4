"""The counts that closed forms are made of, evaluated for every token of a case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout, token_owner

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PLACES = ("dp rank", "cp rank", "micro-batch")
TOKENS = "unmasked tokens"
_SIZES_IN_A_ROW = (2, 3, 4)
RUNS = {"rollout": "run of one rollout", "prompt group": "run of one prompt group"}
"""Neighbours of a micro-batch with one id, as ``unique_consecutive`` groups them."""
IN_A_ROW = (
    *(f"{n} samples in a row" for n in _SIZES_IN_A_ROW),
    *(f"{n} samples in a row of a micro-batch" for n in _SIZES_IN_A_ROW),
)


@dataclass(frozen=True, slots=True)
class Term:
    """A count: what is counted, inside which unit, and inside one of which places."""

    what: str
    unit: str = ""
    places: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """For example "unmasked tokens of the prompt group within one dp rank"."""
        parts = [self.what]
        if self.unit:
            parts.append(f"of the {self.unit}")
        elif not self.places:
            parts.append("of the step")
        if self.places:
            parts.append(f"within one {' and '.join(self.places)}")
        return " ".join(parts)

    @property
    def cost(self) -> int:
        """Of several fitting terms the plainest is reported."""
        odd = (self.what not in _PLAIN) + (self.unit in IN_A_ROW) + 3 * (self.unit in RUNS.values())
        return 2 + len(self.places) + odd


_PLAIN = (TOKENS, "rollouts", "prompt groups")


def places() -> Iterator[tuple[str, ...]]:
    """Every set of places, small ones first."""
    for n in range(len(PLACES) + 1):
        yield from combinations(PLACES, n)


class Tokens:
    """Per response token of some cases, one after the other: its units, its owner, counts.

    Units of different cases are never the same one.
    """

    def __init__(self, cases: Sequence[Case]) -> None:
        samples = [s for case in cases for s in case.step.samples]
        self.mask = _ints([bit for s in samples for bit in s.loss_mask])
        self.keep = self.mask.astype(bool)
        self.lengths = _ints([s.response_length for s in samples])
        self.totals = _ints([s.total_length for s in samples])
        self.sample = np.repeat(np.arange(len(samples)), self.lengths)
        sizes = [case.step.num_response_tokens for case in cases]
        self.case = np.repeat(np.arange(len(cases)), sizes)
        owners = [o for case in cases for o in token_owner(case.step, case.layout)]
        owner = _ints(owners).reshape(-1, 3)
        self.cp_size = _ints([case.layout.cp_size for case in cases])[self.case]
        self.ranks = _ints([case.layout.world_size for case in cases])[self.case]
        self.parts = _ints([_parts(case.layout) for case in cases])
        within = _ints([i for case in cases for i in range(len(case.step.samples))])
        cell, place = _places_in_cells(cases)
        self.ids: dict[str, Ints] = {
            "sample": self.sample,
            "rollout": _numbered(_ints([s.rollout for s in samples]))[self.sample],
            "prompt group": _numbered(_ints([s.group for s in samples]))[self.sample],
            "dp rank": owner[:, 0],
            "cp rank": np.where(_gathered(cases)[self.case], 0, owner[:, 1]),
            "micro-batch": owner[:, 2],
        }
        for n, in_step, in_cell in zip(_SIZES_IN_A_ROW, IN_A_ROW[:3], IN_A_ROW[3:], strict=True):
            self.ids[in_step] = (within // n)[self.sample]
            self.ids[in_cell] = _numbered(cell, place // n)[self.sample]
        first = _firsts(self.sample)
        cell = _numbered(self.case[first], cell)
        for key, run in RUNS.items():
            self.ids[run] = _runs(self.ids[key][first], cell, place)[self.sample]
        self._units: dict[tuple[str, ...], Ints] = {}

    def unit(self, *keys: str) -> Ints:
        """Return a number per token that is equal for tokens of the same case, unit and place."""
        if keys not in self._units:
            self._units[keys] = _numbered(self.case, *(self.ids[k] for k in keys))
        return self._units[keys]

    def values(self, term: Term) -> Array:
        """Return the term's count for every unmasked token."""
        keys = (term.unit, *term.places) if term.unit else term.places
        unit = self.unit(*keys)
        values: Array = _COUNTS[term.what](self, unit)[unit][self.keep]
        return values


def _firsts(sample: Ints) -> Ints:
    """Return the index of the first token of each sample."""
    return _ints(np.unique(sample, return_index=True)[1])


def _runs(ids: Ints, cell: Ints, place: Ints) -> Ints:
    """Per sample, the number of its run: neighbours of one micro-batch with one id."""
    order = np.lexsort((place, cell))
    new = np.ones(len(ids), dtype=np.int64)
    new[1:] = (ids[order][1:] != ids[order][:-1]) | (cell[order][1:] != cell[order][:-1])
    out = np.zeros(len(ids), dtype=np.int64)
    out[order] = np.cumsum(new)
    return out


def _parts(at: Layout) -> int:
    """Return how often a step calls a reducer; calls for copies of gathered losses count once."""
    return at.dp_size * at.num_microbatches * (1 if at.cp_kind == "gathered" else at.cp_size)


def _gathered(cases: Sequence[Case]) -> npt.NDArray[np.bool_]:
    """Where every context-parallel rank has all of the losses: what is at hand is the whole."""
    return np.array([case.layout.cp_kind == "gathered" for case in cases], dtype=bool)


def _ints(values: npt.ArrayLike) -> Ints:
    return np.asarray(values, dtype=np.int64)


def _places_in_cells(cases: Sequence[Case]) -> tuple[Ints, Ints]:
    """Per sample of all cases: the number of its micro-batch, and its place in it."""
    cells, places = [], []
    for case in cases:
        found = {
            i: (number, place)
            for number, (_, _, members) in enumerate(case.layout.cells())
            for place, i in enumerate(members)
        }
        cells += [found[i][0] for i in range(len(case.step.samples))]
        places += [found[i][1] for i in range(len(case.step.samples))]
    return _ints(cells), _ints(places)


def _combined(columns: Sequence[Ints]) -> Ints:
    """One number per row, equal where all columns are."""
    out = np.zeros_like(columns[0])
    for column in columns:
        out = out * (int(column.max(initial=0)) + 1) + column
    return out


def _numbered(*columns: Ints) -> Ints:
    """Rows numbered 0, 1, ... by their distinct contents; large ids, combined, would overflow."""
    return _ints(np.unique(_combined(columns), return_inverse=True)[1]).reshape(-1)


def _pairs(unit: Ints, *parts: Ints) -> Ints:
    """Return the indices of one token for each distinct (unit, part)."""
    return _ints(np.unique(_combined((unit, *parts)), return_index=True)[1])


Count = Callable[[Tokens, Ints], Array]


def _floats(values: npt.ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float64)


def _unmasked(t: Tokens, unit: Ints) -> Array:
    return _floats(np.bincount(unit, weights=t.mask))


def _response(t: Tokens, unit: Ints) -> Array:
    return _floats(np.bincount(unit))


def _total(t: Tokens, unit: Ints) -> Array:
    one = _pairs(unit, t.sample)
    return _floats(np.bincount(unit[one], weights=t.totals[t.sample[one]]))


def _longest(values: str) -> Count:
    """Return the count that takes the largest of one number per sample in each unit."""

    def count(t: Tokens, unit: Ints) -> Array:
        out = np.zeros(int(unit.max()) + 1)
        np.maximum.at(out, unit, getattr(t, values)[t.sample])
        return out

    return count


def _distinct(key: str, *, non_empty: bool) -> Count:
    def count(t: Tokens, unit: Ints) -> Array:
        chosen = t.keep if non_empty else np.ones_like(t.keep)
        one = _pairs(unit[chosen], t.ids[key][chosen])
        return _floats(np.bincount(unit[chosen][one], minlength=int(unit.max()) + 1))

    return count


def _phantoms(*keys: str) -> Count:
    """Unmasked tokens, every part (named by the keys) counting for at least one."""

    def count(t: Tokens, unit: Ints) -> Array:
        part = t.unit(*keys)
        one = _pairs(unit, part)
        tokens = np.maximum(np.bincount(part, weights=t.mask), 1)
        return _floats(np.bincount(unit[one], weights=tokens[part[one]]))

    return count


def _phantom_shards(t: Tokens, unit: Ints) -> Array:
    """Every shard of a micro-batch counts for one at least, in a step also one without a token."""
    found = _phantoms(*_SHARD)(t, unit)
    if np.array_equal(unit, t.unit()):
        found += t.parts - np.bincount(t.case[_firsts(t.unit(*_SHARD))])
    return found


def _floored(t: Tokens, unit: Ints) -> Array:
    """Sum up ``cp_size * (tokens // cp_size)`` over micro-batches; engines divide by at least 1."""
    part = t.unit("dp rank", "micro-batch")
    one = _pairs(unit, part)
    size = t.cp_size[one]
    tokens = np.bincount(part, weights=t.mask)[part[one]] // size * size
    return np.maximum(_floats(np.bincount(unit[one], weights=tokens)), 1.0)


def _floored_whole(t: Tokens, unit: Ints) -> Array:
    """``tokens // cp_size`` of the unit, at least 1."""
    size = np.ones(int(unit.max()) + 1, dtype=np.int64)
    size[unit] = t.cp_size
    return np.maximum(_floats(np.bincount(unit, weights=t.mask) // size), 1.0)


def _floored_each(t: Tokens, unit: Ints) -> Array:
    """``max(tokens // cp_size, 1)`` of every micro-batch, added up."""
    part = t.unit("dp rank", "micro-batch")
    one = _pairs(unit, part)
    tokens = np.bincount(part, weights=t.mask)[part[one]] // t.cp_size[one]
    return _floats(np.bincount(unit[one], weights=np.maximum(tokens, 1)))


def _most_of(*keys: str) -> Count:
    """Return the count that takes the most unmasked tokens of any part, which the keys name."""

    def count(t: Tokens, unit: Ints) -> Array:
        part = _numbered(unit, *(t.ids[key] for key in keys))
        out = np.zeros(int(unit.max()) + 1)
        np.maximum.at(out, unit, np.bincount(part, weights=t.mask)[part])
        return out

    return count


def _of_the_last(t: Tokens, unit: Ints) -> Array:
    """Unmasked tokens of the last sample of each unit."""
    last = np.zeros(int(unit.max()) + 1, dtype=np.int64)
    np.maximum.at(last, unit, t.sample)
    return _floats(np.bincount(t.sample, weights=t.mask)[last])


def _one_a_rank(t: Tokens, unit: Ints) -> Array:
    """Tokens of the unit, at least as many as there are ranks."""
    least = np.zeros(int(unit.max()) + 1, dtype=np.int64)
    least[unit] = t.ranks
    return np.maximum(_floats(np.bincount(unit, weights=t.mask)), _floats(least))


def _longest_piece(t: Tokens, unit: Ints) -> Array:
    """Return the most response tokens that any sample has on one context-parallel rank."""
    part = t.unit("sample", "cp rank")
    out = np.zeros(int(unit.max()) + 1)
    np.maximum.at(out, unit, np.bincount(part)[part])
    return out


def _once_per(key: str, *where: str) -> Count:
    """Units counted in every place that holds a part of them, added up."""

    def count(t: Tokens, unit: Ints) -> Array:
        one = _pairs(unit, t.unit(*where), t.ids[key])
        return _floats(np.bincount(unit[one], minlength=int(unit.max()) + 1))

    return count


_CELL = ("dp rank", "micro-batch")
_SHARD = (*_CELL, "cp rank")
_COUNTS: dict[str, Count] = {
    TOKENS: _unmasked,
    "response tokens": _response,
    "prompt and response tokens": _total,
    "the longest response": _longest("lengths"),
    "the longest prompt and response": _longest("totals"),
    "unmasked tokens (each sample at least one)": _phantoms("sample"),
    "unmasked tokens (each rollout at least one)": _phantoms("rollout"),
    "unmasked tokens (each prompt group at least one)": _phantoms("prompt group"),
    "unmasked tokens (each micro-batch at least one)": _phantoms(*_CELL),
    "unmasked tokens (each micro-batch and shard at least one)": _phantom_shards,
    "unmasked tokens (each rank at least one)": _phantoms("dp rank"),
    "unmasked tokens (floored to a multiple of cp_size in each micro-batch)": _floored,
    "unmasked tokens (floored by cp_size)": _floored_whole,
    "unmasked tokens (floored by cp_size, at least 1, in each micro-batch)": _floored_each,
    "unmasked tokens (the most of any rank)": _most_of("dp rank"),
    "unmasked tokens (the most of any micro-batch)": _most_of("micro-batch"),
    "unmasked tokens (the most of any rank and micro-batch)": _most_of(*_CELL),
    "the last sample's unmasked tokens": _of_the_last,
    "non-empty micro-batches": _distinct("micro-batch", non_empty=True),
    **{f"runs{run[3:]}": _distinct(run, non_empty=False) for run in RUNS.values()},
    "unmasked tokens (at least one for each rank)": _one_a_rank,
    "the longest piece of a response": _longest_piece,
    "rollouts": _distinct("rollout", non_empty=False),
    "samples": _distinct("sample", non_empty=False),
    "prompt groups": _distinct("prompt group", non_empty=False),
    "non-empty rollouts": _distinct("rollout", non_empty=True),
    "non-empty samples": _distinct("sample", non_empty=True),
    "non-empty prompt groups": _distinct("prompt group", non_empty=True),
    **{
        f"{plural} counted once per {name}": _once_per(key, *where)
        for plural, key in (("rollouts", "rollout"), ("prompt groups", "prompt group"))
        for name, where in (
            ("rank and micro-batch", _CELL),
            ("rank", ("dp rank",)),
            ("micro-batch", ("micro-batch",)),
        )
    },
}


def inner_terms() -> Iterator[Term]:
    """Yield what a token's own unit may be divided by."""
    for what in (TOKENS, "response tokens"):
        for unit in ("", "sample", "rollout", "prompt group"):
            for where in places():
                yield Term(what, unit, where)
    for unit in (*IN_A_ROW, *RUNS.values()):
        yield Term(TOKENS, unit)
    for unit in ("rollout", "prompt group"):
        for where in ((), _CELL):
            yield Term("the last sample's unmasked tokens", unit, where)
    for what in _COUNTS:
        if "longest" in what or what.startswith("prompt and") or "(" in what:
            units = ("",) if "(" in what else ("", "sample", "rollout", "prompt group")
            for unit in units:
                for where in ((), _CELL, ("dp rank",), ("micro-batch",)):
                    yield Term(what, unit, where)
    for where in (PLACES, ("cp rank", "micro-batch"), ("dp rank", "cp rank"), ("cp rank",)):
        yield Term("the longest piece of a response", "", where)


def outer_terms() -> Iterator[tuple[Term, ...]]:
    """How many units the average may run over; members of a prompt group come with P."""
    for what in ("rollouts", "samples", "prompt groups"):
        for prefix in ("", "non-empty "):
            for where in places():
                yield (Term(prefix + what, "", where),)
    for what in _COUNTS:
        if "counted once" in what:
            yield (Term(what),)
    for run in RUNS.values():
        yield from ((Term(f"runs{run[3:]}", "", where),) for where in ((), _CELL))
    yield (Term("non-empty micro-batches", "", ("dp rank",)),)
    for what in ("rollouts", "samples", "non-empty rollouts"):
        for where in ((), _CELL):
            yield (Term(what, "prompt group", where), Term("prompt groups"))
    # What an engine divides by, and once more what is at hand.
    for what in ("rollouts", "samples", "prompt groups"):
        yield (Term("rollouts"), Term(what, "", _CELL))
    yield (Term(TOKENS),)
    for what in ("rollouts", "samples"):
        yield (Term(TOKENS), Term(what, "", _CELL))


def upper_terms() -> Iterator[Term]:
    """Yield what a token's weight may be multiplied by."""
    yield Term(TOKENS, "", _CELL)
    for what in ("samples", "rollouts", "prompt groups"):
        for where in ((), _CELL, ("dp rank",), ("micro-batch",)):
            yield Term(what, "", where)
    yield Term("non-empty micro-batches", "", ("dp rank",))
