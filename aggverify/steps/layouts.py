"""How one step is spread over ranks: data parallel, context parallel, micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from aggverify import codec
from aggverify.codec import Count, Part
from aggverify.errors import InputError, unknown
from aggverify.oracles import Sample, Step

CpKind = Literal["zigzag", "contiguous", "gathered", "bshd"]
CP_KINDS: tuple[str, ...] = get_args(CpKind)
Piece = tuple[int, int]
"""A half-open range of response-token indices of one sample."""
Index = npt.NDArray[np.int64]
MAX_RANKS = 64
"""A layout read from JSON may have no more."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which rank computes what: ``micro_batches[d][k]`` are sample indices, shared by CP ranks.

    ``micro_batches``: of each data-parallel rank, its micro-batches, as many as every other has,
    none empty. ``cp_size``: context-parallel ranks that share each of them; ``cp_kind``: whether
    they own ``zigzag`` or ``contiguous`` chunks of a sample, prompt included, or zigzag chunks of
    rows as wide as the rank's widest (``bshd``), or all hold ``gathered`` losses. Raises InputError
    for anything else.
    """

    micro_batches: tuple[tuple[tuple[int, ...], ...], ...]
    cp_size: int = 1
    cp_kind: CpKind = "zigzag"

    def __post_init__(self) -> None:
        if not isinstance(self.cp_size, int) or self.cp_size < 1:
            raise InputError(f"cp_size must be an integer of at least 1, got {self.cp_size!r:.200}")
        if self.cp_kind not in CP_KINDS:
            raise unknown("context-parallel kind", self.cp_kind, CP_KINDS)
        counts = {len(rank) for rank in self.micro_batches}
        if len(counts) != 1 or 0 in counts:
            per_rank = [len(rank) for rank in self.micro_batches]
            raise InputError(
                f"every data-parallel rank needs the same number (at least 1) of micro-batches, "
                f"got {per_rank}"
            )
        if not all(map(all, self.micro_batches)):
            raise InputError(f"a micro-batch without a sample in {self.micro_batches!r:.200}")

    @staticmethod
    @lru_cache(maxsize=64)
    def trivial(num_samples: int) -> Layout:
        """One rank, one micro-batch, no context parallelism."""
        return Layout(micro_batches=((tuple(range(num_samples)),),))

    @property
    def dp_size(self) -> int:
        return len(self.micro_batches)

    @property
    def num_microbatches(self) -> int:
        return len(self.micro_batches[0])

    @property
    def world_size(self) -> int:
        return self.dp_size * self.cp_size

    @property
    def is_trivial(self) -> bool:
        return self.world_size == 1 and self.num_microbatches == 1

    def cells(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield ``(data-parallel rank, micro-batch, sample indices)``."""
        for d, rank in enumerate(self.micro_batches):
            for k, cell in enumerate(rank):
                yield d, k, cell

    def check_covers(self, step: Step) -> None:
        """Raise unless every sample of the step stands in exactly one micro-batch."""
        placed = sorted(chain.from_iterable(chain.from_iterable(self.micro_batches)))
        if placed != list(range(len(step.samples))):
            raise InputError(
                f"the micro-batches must hold each of the {len(step.samples)} samples exactly "
                f"once, got {self.micro_batches!r:.200}"
            )
        if self.cp_size > 1:
            bare = [i for i, s in enumerate(step.samples) if s.prompt_length < 1]
            if bare:
                raise InputError(
                    f"context parallelism needs a prompt of at least one token (the first response "
                    f"token has no logit to own it otherwise); samples {bare} have none"
                )

    def to_json(self) -> dict[str, Any]:
        """Plain data for a case file."""
        cells = [[list(cell) for cell in rank] for rank in self.micro_batches]
        return {"cp": self.cp_size, "kind": self.cp_kind, "micro_batches": cells}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Layout:
        """Rebuild a layout from :meth:`to_json`'s data; raises InputError."""
        stored = codec.read(_StoredLayout, data, "the layout")
        layout = Layout(stored.micro_batches, stored.cp, stored.kind)
        if layout.world_size > MAX_RANKS:
            raise InputError(
                f"a layout of at most {MAX_RANKS} ranks can be run, got cp_size "
                f"{layout.cp_size!r:.40} times {layout.dp_size} data-parallel ranks"
            )
        return layout


def dimensions(layout: Layout) -> frozenset[str]:
    """Return the sizes of the layout that are more than one, by the names of :class:`Layout`."""
    names = ("dp_size", "cp_size", "num_microbatches")
    return frozenset(name for name in names if getattr(layout, name) > 1)


class _StoredLayout(Part, frozen=True, forbid_unknown_fields=False):
    """A layout as JSON has it."""

    micro_batches: tuple[tuple[tuple[Count, ...], ...], ...]
    cp: Annotated[int, Meta(ge=1)]
    kind: CpKind


@lru_cache(maxsize=1 << 16)
def zigzag_pieces(
    prompt_length: int, response_length: int, cp_size: int, cp_rank: int, *, chunk: int = 0
) -> tuple[Piece, ...]:
    """Response tokens of one sample on a zigzag rank, in local order: first half, second half.

    ``chunk`` is the chunk length of a padded ("bshd") row; 0 means packed, where every sample has
    its own. Ownership follows the logit: the token at stream position p belongs to the rank that
    holds p - 1 (Megatron-LM, slime's and miles' ``get_logits_and_tokens_offset_with_cp``).
    """
    if cp_size == 1:
        return ((0, response_length),) if response_length else ()
    chunks = zigzag_chunks(prompt_length + response_length, cp_size, cp_rank, chunk)
    shift = 1 - prompt_length
    return clipped(((a + shift, b + shift) for a, b in chunks), response_length)


def zigzag_chunks(total: int, cp_size: int, cp_rank: int, chunk: int) -> Iterator[Piece]:
    """Yield the rank's two chunks as positions of a sequence, which may lie beyond its end."""
    q = chunk or -(-total // (2 * cp_size))
    for first in (cp_rank * q, (2 * cp_size - 1 - cp_rank) * q):
        yield first, first + q


def contiguous_pieces(
    samples: Sequence[Sample], cp_size: int, cp_rank: int
) -> tuple[tuple[Piece, ...], ...]:
    """Response tokens per sample on a rank that owns one chunk of the concatenated stream."""
    pieces = []
    for s, (first, last) in zip(samples, contiguous_chunks(samples, cp_size, cp_rank), strict=True):
        shift = 1 - s.prompt_length
        pieces.append(clipped([(first + shift, last + shift)], s.response_length))
    return tuple(pieces)


def contiguous_chunks(samples: Sequence[Sample], cp_size: int, cp_rank: int) -> Iterator[Piece]:
    """Yield the rank's chunk of a pack as positions of each sample, which may lie outside it."""
    q = -(-sum(s.total_length for s in samples) // cp_size)
    start = 0
    for s in samples:
        yield cp_rank * q - start, (cp_rank + 1) * q - start
        start += s.total_length


def clipped(ranges: Iterable[Piece], length: int) -> tuple[Piece, ...]:
    """Ranges, without what is below 0 or beyond ``length``."""
    inside = ((max(a, 0), min(b, length)) for a, b in ranges)
    return tuple((a, b) for a, b in inside if a < b)


def owned_pieces(
    step: Step, members: Sequence[int], layout: Layout, cp_rank: int
) -> tuple[tuple[Piece, ...], ...]:
    """Pieces per sample of a micro-batch whose *gradient* the rank owns (each token once).

    In the gathered layout the rank sees everything but its logits are the zigzag slice.
    """
    samples = [step.samples[i] for i in members]
    if layout.cp_kind == "contiguous" and layout.cp_size > 1:
        return contiguous_pieces(samples, layout.cp_size, cp_rank)
    chunk = row_chunk(step, members, layout)
    return tuple(
        zigzag_pieces(s.prompt_length, s.response_length, layout.cp_size, cp_rank, chunk=chunk)
        for s in samples
    )


def row_chunk(step: Step, members: Sequence[int], layout: Layout) -> int:
    """Tokens in a chunk of a padded row, 0 where each sample has its own."""
    if layout.cp_kind != "bshd" or layout.cp_size == 1:
        return 0
    return -(-rank_width(step, members, layout) // (2 * layout.cp_size))


def rank_width(step: Step, members: Sequence[int], layout: Layout) -> int:
    """Return the tokens of the widest sample of the data-parallel rank that holds these.

    Its prompt is included.
    """
    cells = next(rank for rank in layout.micro_batches if any(members[0] in c for c in rank))
    mine = (step.samples[i] for cell in cells for i in cell)
    return max(s.total_length for s in mine)


def visible_pieces(
    step: Step, members: Sequence[int], layout: Layout, cp_rank: int
) -> tuple[tuple[Piece, ...], ...]:
    """Pieces per sample whose losses the reducer receives: everything when gathered."""
    if layout.cp_kind == "gathered":
        return tuple(((0, step.samples[i].response_length),) for i in members)
    return owned_pieces(step, members, layout, cp_rank)


def positions(starts: Sequence[int], pieces: Sequence[tuple[Piece, ...]]) -> Index:
    """Return flat token indices, in local order; ``starts``: the first token of each sample."""
    joined: list[Piece] = []
    for start, parts in zip(starts, pieces, strict=True):
        for a, b in parts:
            first = joined.pop()[0] if joined and joined[-1][1] == start + a else start + a
            joined.append((first, start + b))
    if len(joined) == 1:
        return np.arange(*joined[0], dtype=np.int64)
    found = [np.arange(a, b, dtype=np.int64) for a, b in joined]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def token_owner(step: Step, layout: Layout) -> list[tuple[int, int, int]]:
    """``(dp rank, cp rank, micro-batch)`` of every response token, flat in step order."""
    owner = [(0, 0, 0)] * step.num_response_tokens
    for d, k, members in layout.cells():
        for c in range(layout.cp_size):
            for i, pieces in zip(members, owned_pieces(step, members, layout, c), strict=True):
                for a, b in pieces:
                    start = step.offsets[i]
                    owner[start + a : start + b] = [(d, c, k)] * (b - a)
    return owner
