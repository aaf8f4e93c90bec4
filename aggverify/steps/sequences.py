"""Whole sequences, prompts included: their token ids, and the positions whose logits a rank has.

The logit at a position predicts the next one's token. A response without a prompt follows one more
token, like a tokenizer's first one: otherwise nothing would predict its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from aggverify.oracles import Sample, Step
from aggverify.steps.layouts import (
    Index,
    Layout,
    clipped,
    contiguous_chunks,
    positions,
    row_chunk,
    zigzag_chunks,
)

_DISTINCT, _MANY = 512, 61
"""Up to 512 tokens have an id each; those of more repeat every 61, so that neighbours differ."""
NOTHING = -1
"""Stands for the predicted response token at positions that predict none."""


def before(sample: Sample) -> int:
    """Tokens before the response."""
    return max(sample.prompt_length, 1)


@lru_cache(maxsize=16)
def vocabulary(step: Step) -> int:
    """Return the number of ids; 0 is no token's."""
    tokens = sum(before(s) + s.response_length for s in step.samples)
    return 1 + (tokens if tokens <= _DISTINCT else _MANY)


@lru_cache(maxsize=16)
def token_ids(step: Step) -> tuple[Index, ...]:
    """Return each sample's token ids; int64."""
    lengths = [before(s) + s.response_length for s in step.samples]
    firsts = accumulate(lengths, initial=0)
    most = vocabulary(step) - 1
    return tuple(1 + (f + np.arange(n)) % most for f, n in zip(firsts, lengths, strict=False))


class SequenceRows(NamedTuple):
    """Positions whose logits a rank has, one row each.

    ``token``: which of the step's response tokens the row predicts, or NOTHING.
    """

    sample: Index
    position: Index
    token: Index


def rows(step: Step, members: Sequence[int], layout: Layout, cp_rank: int) -> SequenceRows:
    """Return the rank's rows of a micro-batch, in order of its samples and of the rank's chunks."""
    parts = []
    for i, own in zip(members, row_positions(step, members, layout, cp_rank), strict=True):
        sample, first = step.samples[i], step.offsets[i]
        t = own + 1 - before(sample)
        inside = (t >= 0) & (t < sample.response_length)
        parts.append((np.full(len(own), i), own, np.where(inside, first + t, NOTHING)))
    return SequenceRows(*map(np.concatenate, zip(*parts, strict=True)))


def next_ids(step: Step, known: SequenceRows) -> Index:
    """Return the id of what follows each position; 0 at the end of a sequence."""
    ids = token_ids(step)
    found = np.zeros(len(known.token), np.int64)
    for i in np.unique(known.sample).tolist():
        own = known.sample == i
        found[own] = np.append(ids[i][1:], 0)[known.position[own]]
    return found


def row_positions(step: Step, members: Sequence[int], layout: Layout, cp_rank: int) -> list[Index]:
    """Of each sample of a micro-batch, the positions whose logits the rank has."""
    samples = [step.samples[i] for i in members]
    if layout.cp_size == 1:
        return [np.arange(before(s) + s.response_length) for s in samples]
    if layout.cp_kind == "contiguous":
        chunks = [[c] for c in contiguous_chunks(samples, layout.cp_size, cp_rank)]
    else:
        width = row_chunk(step, members, layout)
        every = (zigzag_chunks(s.total_length, layout.cp_size, cp_rank, width) for s in samples)
        chunks = [[*own] for own in every]
    return [
        positions([0], [clipped(own, s.total_length)])
        for s, own in zip(samples, chunks, strict=True)
    ]
