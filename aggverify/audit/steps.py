"""Records of all ranks as steps: every sample put together, and what each token weighs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from aggverify.audit.records import Array, RankFile, Record
from aggverify.audit.sample_pieces import Key, Piece, RecordShape, pieces, shape_of
from aggverify.errors import InputError
from aggverify.oracles import Sample, Step
from aggverify.steps.case import DTYPES, Case
from aggverify.steps.layouts import Layout


@dataclass(frozen=True, slots=True)
class ParallelDims:
    """How the world is divided; what Megatron does not declare, a person does."""

    world: int
    cp_size: int = 1
    tp_size: int = 1
    pp_size: int = 1

    @property
    def dp_size(self) -> int:
        return self.world // (self.cp_size * self.tp_size * self.pp_size)

    def is_copy(self, record: Record) -> bool:
        """Whether the first tensor-parallel rank has the same losses."""
        return bool(record.head.get("tp_rank", record.head["rank"] % self.tp_size))


@dataclass(slots=True)
class MergedSample:
    """One sample of a step, of all its pieces."""

    key: Key
    weights: Array
    mask: Array
    known: Array
    places: tuple[tuple[int, int], ...]
    """Ranks and micro-batches that hold it."""
    group: int | None
    rollout: int | None
    dummy: bool
    used: bool
    twice: Array
    """Tokens that were weighed more than once."""
    copies: bool = False
    """Whether every context-parallel rank holds all of it, gathered."""
    lost: tuple[int, ...] = ()
    """Positions between the first and the last that no rank holds."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One optimizer step.

    ``case`` has the step's samples, and after them dummies and what stands for a rank's empty
    micro-batches, fully masked; the mode is asked of ``step`` alone.
    """

    number: int
    step: Step
    case: Case
    weights: Array
    """Of every response token of the case, summed over ranks, before the reduction."""
    known: Array
    samples: tuple[MergedSample, ...]
    """In the case's order, dummies included."""
    counts: float | None
    """The token counts that travelled with the losses, of all ranks."""
    parts: int
    """Ranks that recorded anything of it."""
    terms: Mapping[str, Array] = field(default_factory=dict)
    """Weights of further terms, where they have the same tokens."""

    @property
    def groups(self) -> frozenset[int]:
        """Their ids as the trainer gave them."""
        return frozenset(s.group for s in self.samples if s.group is not None and not s.dummy)

    def name(self, sample: int) -> str:
        """Return a sample by the trainer's id and the places that hold it."""
        if sample >= len(self.samples):
            return "nothing"
        one = self.samples[sample]
        where = ", ".join(f"rank {r} micro-batch {k}" for r, k in one.places)
        return (f"sample id {one.key[0]} on " if len(one.key) == 1 else "a sample of ") + where


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """All that was recorded of one run."""

    ranks: ParallelDims
    steps: tuple[RecordedStep, ...]
    shape: RecordShape
    dtype: str
    quantities: frozenset[str]
    silent: tuple[int, ...]
    """Ranks that recorded nothing."""
    cut: tuple[str, ...]
    """Files that end within a record."""
    reductions: Mapping[int, tuple[Record, ...]]


def merged(
    files: Sequence[RankFile],
    cp: int | None = None,
    tp: int | None = None,
    pp: int | None = None,
) -> RecordedRun:
    """Return the run.

    Raises InputError for records of two runs, or sizes that do not divide its world.
    """
    records = [record for file in files for record in file.records]
    if not records:
        raise InputError("the files hold no complete record: no backward pass came to its end")
    owners = [f.records[0].head["rank"] for f in files if f.records]
    if twice := sorted({rank for rank in owners if owners.count(rank) > 1}):
        raise InputError(
            f"several files of rank {twice[0]}: these are records of several runs; empty the "
            f"folder before each"
        )
    ranks = _ranks(records, cp, tp, pp)
    mine = _passes_added([r for r in records if "weights" in r.arrays and not ranks.is_copy(r)])
    losses = [r for r in mine if r.head["name"] == "loss"]
    shape = RecordShape()
    for record in losses:
        shape = shape.and_also(shape_of(record))
    steps: dict[int, list[Record]] = defaultdict(list)
    for record in losses:
        steps[record.head["step"]].append(record)
    terms = [r for r in mine if r.head["name"] != "loss"]
    reductions: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        if record.head["name"] == "reduction":
            reductions[record.head["step"]].append(record)
    dtypes = {r.head["dtype"] for r in losses if not r.head.get("unused")} & set(DTYPES)
    return RecordedRun(
        ranks,
        tuple(_step(n, steps[n], terms, ranks) for n in sorted(steps)),
        shape,
        max(dtypes, key=DTYPES.index) if dtypes else "float32",
        frozenset(r.head["quantity"] for r in losses),
        tuple(sorted(set(range(ranks.world)) - {r.head["rank"] for r in records})),
        tuple(f.path.name for f in files if f.cut),
        {n: tuple(found) for n, found in reductions.items()},
    )


def _passes_added(records: Iterable[Record]) -> list[Record]:
    """One record of each call of a probe: several backward passes through it add up."""
    found: dict[object, Record] = {}
    for n, record in enumerate(records):
        key = (record.head["rank"], record.head.get("call", f"record {n}"))
        first = found.setdefault(key, record)
        if first is not record:
            total = first.arrays["weights"] + record.arrays["weights"]
            found[key] = replace(first, arrays={**first.arrays, "weights": total})
    return list(found.values())


def _ranks(
    records: Sequence[Record], cp: int | None, tp: int | None, pp: int | None
) -> ParallelDims:
    head = records[0].head
    found = ParallelDims(
        head["world"],
        cp or head.get("cp_size", 1),
        tp or head.get("tp_size", 1),
        pp or head.get("pp_size", 1),
    )
    if found.world % (found.cp_size * found.tp_size * found.pp_size):
        raise InputError(
            f"context-parallel size {found.cp_size}, tensor-parallel size {found.tp_size} and "
            f"{found.pp_size} pipeline stages must divide the world of {found.world} ranks"
        )
    return found


def _step(
    number: int, records: Sequence[Record], terms: Sequence[Record], ranks: ParallelDims
) -> RecordedStep:
    every = [_trimmed(one) for one in _put_together(_pieces(records), ranks) if len(one.mask)]
    real = [s for s in every if not s.dummy]
    if not real:
        raise InputError(f"step {number} has no sample that is not a dummy (sample_ids below 0)")
    samples = real + [s for s in every if s.dummy]
    inside = [_sample(*numbered) for numbered in _numbered(samples)]
    cells, more = _cells(samples, records, ranks)
    for _ in range(more):
        inside.append(Sample(1, b"\0", len(samples) + len(inside), len(samples) + len(inside)))
    step = Step(tuple(inside[: len(real)]))
    whole = Step(tuple(inside))
    copied = any(one.copies for one in samples)
    layout = Layout(cells, ranks.cp_size, "gathered" if copied else "zigzag")
    tokens = whole.num_response_tokens
    dtype = next((r.head["dtype"] for r in records if r.head["dtype"] in DTYPES), "float32")
    counts = [r.head["count"] for r in records if "count" in r.head]
    return RecordedStep(
        number,
        step,
        Case(whole, layout, (1.0,) * tokens, dtype),
        _joined([s.weights for s in samples], tokens, 0.0),
        _joined([s.known for s in samples], tokens, True),
        tuple(samples),
        sum(counts) if counts else None,
        len({r.head["rank"] for r in records}),
        dict(_terms(number, terms, samples, ranks, tokens)),
    )


def _terms(
    number: int,
    terms: Sequence[Record],
    losses: Sequence[MergedSample],
    ranks: ParallelDims,
    tokens: int,
) -> Iterator[tuple[str, Array]]:
    for name in dict.fromkeys(r.head["name"] for r in terms if r.head["step"] == number):
        own = [r for r in terms if (r.head["step"], r.head["name"]) == (number, name)]
        found = {s.key: _trimmed(s) for s in _put_together(_pieces(own), ranks) if len(s.mask)}
        rows = [found[s.key] for s in losses if s.key in found]
        if [len(r.weights) for r in rows] == [len(s.weights) for s in losses]:
            yield name, _joined([r.weights for r in rows], tokens, 0.0)


def _pieces(records: Iterable[Record]) -> Iterator[Piece]:
    seen: dict[tuple[int, int], int] = defaultdict(int)
    for record in records:
        place = record.head["rank"], record.head["micro_batch"]
        yield from pieces(record, seen[place])
        seen[place] += 1


def _put_together(every: Iterable[Piece], ranks: ParallelDims) -> Iterator[MergedSample]:
    by: dict[Key, list[Piece]] = defaultdict(list)
    for piece in every:
        by[piece.sample].append(piece)
    for key, own in by.items():
        used = [p for p in own if p.used] or own[:1]
        if key[0] < 0:  # dummies of one id are many
            yield from (_whole(key, [piece], ranks) for piece in used)
        else:
            yield _whole(key, used, ranks)


def _whole(key: Key, own: Sequence[Piece], ranks: ParallelDims) -> MergedSample:
    """Tokens of all pieces in the order of their positions.

    Where several ranks hold one, their weights are added, unless all context-parallel ranks hold
    copies of what was gathered.
    """
    where = np.concatenate(_positions(key, own, ranks))
    at, first, inverse, times = np.unique(
        where, return_index=True, return_inverse=True, return_counts=True
    )
    weights, mask, known = (
        np.concatenate([getattr(p, name) for p in own]) for name in ("weights", "mask", "known")
    )
    copies = len({p.rank for p in own}) == len(own) == ranks.cp_size and (times == len(own)).all()
    total = weights[first] if copies else np.zeros(len(at))
    if not copies:
        np.add.at(total, inverse.reshape(-1), weights)
    gaps = (
        np.setdiff1d(np.arange(at[0], at[-1] + 1), at) if len(at) and ranks.cp_size > 1 else at[:0]
    )
    return MergedSample(
        key,
        total,
        mask[first] & (not own[0].dummy),
        known[first],
        tuple(dict.fromkeys((p.rank, p.micro_batch) for p in own)),
        own[0].group,
        own[0].rollout,
        own[0].dummy,
        any(p.used for p in own),
        (times > 1) & (not copies),
        bool(copies and len(own) > 1),
        tuple(gaps.tolist()),
    )


def _positions(key: Key, own: Sequence[Piece], ranks: ParallelDims) -> list[Array]:
    if all(p.positions is not None for p in own):
        return [p.positions for p in own if p.positions is not None]
    if len(own) > 1 and ranks.cp_size > 1:
        raise InputError(
            f"sample id {key[0]} is on {len(own)} ranks or micro-batches, and shards of it cannot "
            f"be distinguished from copies: give the probe positions="
        )
    starts: dict[bytes, int] = {}
    end = 0
    for piece in own:  # pieces with one mask are taken for copies, others for further tokens
        if piece.mask.tobytes() not in starts:
            starts[piece.mask.tobytes()] = end
            end += len(piece.mask)
    return [starts[p.mask.tobytes()] + np.arange(len(p.mask)) for p in own]


def _trimmed(one: MergedSample) -> MergedSample:
    """Without padding at either end that has no weight; at least one token is left."""
    kept = np.flatnonzero(one.mask | (one.weights != 0))
    ends = slice(int(kept[0]), int(kept[-1]) + 1) if len(kept) else slice(0, 1)
    parts = (getattr(one, name)[ends] for name in ("weights", "mask", "known", "twice"))
    one.weights, one.mask, one.known, one.twice = parts
    return one


def _numbered(samples: Sequence[MergedSample]) -> Iterator[tuple[MergedSample, int, int]]:
    """Each with its rollout and prompt group, numbered in order."""
    rollouts: dict[object, int] = {}
    groups: dict[object, int] = {}
    for one in samples:
        alone = (one.key, len(rollouts), one.dummy)
        rollout = alone if one.rollout is None or one.dummy else one.rollout
        group = rollout if one.group is None or one.dummy else one.group
        r = rollouts.setdefault(rollout, len(rollouts))
        yield one, r, groups.setdefault(group, len(groups))


def _sample(one: MergedSample, rollout: int, group: int) -> Sample:
    return Sample(1, one.mask.astype(np.uint8).tobytes(), rollout, group)


def _cells(
    samples: Sequence[MergedSample], records: Sequence[Record], ranks: ParallelDims
) -> tuple[tuple[tuple[tuple[int, ...], ...], ...], int]:
    """Return samples by data-parallel rank and micro-batch, and how many stand for empty ones."""
    width = ranks.cp_size * ranks.tp_size
    shards = {
        r.head["rank"]: (r.head["rank"] // width) % ranks.dp_size for r in records
    }  # the rank that it is of, whatever the pipeline's stage
    passes: dict[int, list[int]] = {d: [] for d in range(ranks.dp_size)}
    for record in records:
        found = passes[shards[record.head["rank"]]]
        found += [record.head["micro_batch"]] * (record.head["micro_batch"] not in found)
    most = max(1, *map(len, passes.values()))
    cells: list[list[list[int]]] = [[[] for _ in range(most)] for _ in passes]
    for n, one in enumerate(samples):
        rank, k = one.places[0]
        d = shards[rank]
        cells[d][sorted(passes[d]).index(k)].append(n)
    more = 0
    for cell in (cell for rank in cells for cell in rank if not cell):
        cell.append(len(samples) + more)
        more += 1
    return tuple(tuple(tuple(cell) for cell in rank) for rank in cells), more


def _joined(parts: Sequence[Array], tokens: int, rest: float | bool) -> Array:
    found = np.concatenate(parts)
    return np.concatenate([found, np.full(tokens - len(found), rest, dtype=found.dtype)])
