"""Records as pieces of samples: what one backward pass weighed of one sample on one rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggverify.audit.records import Array, Record
from aggverify.errors import InputError

Key = tuple[int, ...]
"""A sample: its id alone, or where its row lay: rank, micro-batch, record and row."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens of one sample in one record, all of them in one order."""

    sample: Key
    group: int | None
    rollout: int | None
    rank: int
    micro_batch: int
    weights: Array
    mask: Array
    known: Array
    positions: Array | None
    """In the sample; None where nothing declares them."""
    dummy: bool
    """Whether its sample's id is negative, by which a trainer marks copies that only fill up."""
    used: bool
    """Whether anything went backward through it."""


@dataclass(frozen=True, slots=True)
class RecordShape:
    """The samples' bounds and ids, as records have them."""

    samples: bool = True
    """Whether it is known where each sample begins."""
    ids: bool = True
    groups: bool = True

    def and_also(self, other: RecordShape) -> RecordShape:
        return RecordShape(
            self.samples and other.samples,
            self.ids and other.ids,
            self.groups and other.groups,
        )


def shape_of(record: Record) -> RecordShape:
    """Of one record."""
    arrays = record.arrays
    flat = arrays["weights"].ndim < 2
    return RecordShape(
        not flat or "lengths" in arrays or "sample_ids" in arrays,
        "sample_ids" in arrays,
        "group_ids" in arrays,
    )


def pieces(record: Record, nth: int) -> Iterator[Piece]:
    """Every sample of a record, the ``nth`` of its backward pass.

    Raises InputError for arrays that do not fit each other.
    """
    weights, head = record.arrays["weights"], record.head
    mask = _like(record, "mask", np.uint8(1)) != 0
    known = _like(record, "known", np.uint8(1)) != 0
    for n, tokens in enumerate(_rows(record)):
        sample = _one(record, "sample_ids", n, tokens)
        where = record.arrays.get("positions")
        yield Piece(
            sample=(sample,) if sample is not None else _place(head, nth, n),
            group=_one(record, "group_ids", n, tokens),
            rollout=_one(record, "rollout_ids", n, tokens),
            rank=head["rank"],
            micro_batch=head["micro_batch"],
            weights=weights.reshape(-1)[tokens].astype(np.float64),
            mask=mask.reshape(-1)[tokens],
            known=known.reshape(-1)[tokens],
            positions=None if where is None else _same(where, weights, "positions")[tokens],
            dummy=sample is not None and sample < 0,
            used=not head.get("unused", False),
        )


def _place(head: Any, nth: int, row: int) -> Key:
    return head["rank"], head["micro_batch"], nth, row


def _rows(record: Record) -> Iterable[Array]:
    """Return the flat indices of each sample's tokens."""
    weights, arrays = record.arrays["weights"], record.arrays
    every = np.arange(weights.size)
    ids = arrays.get("sample_ids")
    if weights.ndim >= 2 and (ids is None or ids.size == len(weights)):
        return list(every.reshape(len(weights), -1)) if weights.size else []
    if "lengths" in arrays:
        lengths = arrays["lengths"].reshape(-1)
        if lengths.sum() != weights.size or (lengths < 0).any():
            raise InputError(
                f"lengths of the samples add up to {lengths.sum()}, and there are {weights.size} "
                f"losses: give the lengths of what this rank holds"
            )
        return np.split(every, np.cumsum(lengths)[:-1])
    if ids is not None:
        flat = _same(ids, weights, "sample_ids")
        return [every[flat == one] for one in dict.fromkeys(flat.tolist())]
    return [every] if weights.size else []


def _like(record: Record, name: str, usual: Any) -> Array:
    weights = record.arrays["weights"]
    found = record.arrays.get(name)
    if found is None:
        return np.full(weights.size, usual)
    return _same(found, weights, name)


def _same(found: Array, weights: Array, name: str) -> Array:
    if found.size != weights.size:
        raise InputError(
            f"{name} must have the losses' shape {weights.shape}, got {found.shape}: give the "
            f"probe what belongs to these losses"
        )
    return found.reshape(-1)


def _one(record: Record, name: str, row: int, tokens: Array) -> int | None:
    """Return the id of a sample, given once a row or once a token."""
    ids = record.arrays.get(name)
    if ids is None:
        return None
    flat = ids.reshape(-1)
    if ids.size == record.arrays["weights"].size and record.arrays["weights"].ndim == ids.ndim:
        return int(flat[tokens[0]]) if len(tokens) else None
    if row >= len(flat):
        raise InputError(f"{name}: one a sample or a token, got {ids.size} and no sample {row}")
    return int(flat[row])
