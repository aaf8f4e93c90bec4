"""How a function is given per-token values.

As padded rows of responses, as rows of whole sequences, prompt and padding included, or as those
packed one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

import numpy as np

from aggverify.conventions.padded_rows import Side, Width
from aggverify.steps.case import Case
from aggverify.steps.layouts import Index, positions, rank_width, visible_pieces

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["padded", "whole", "packed"]


@dataclass(frozen=True, slots=True)
class RowForm:
    """The form; ``packed`` has neither side nor width."""

    kind: Kind = "padded"
    side: Side = "right"
    width: Width = "micro-batch"


@dataclass(frozen=True, slots=True)
class Places:
    """Where the values of a rank's micro-batch stand, everything else being padding."""

    shape: tuple[int, ...]
    index: Index
    """Of each value in order, its place in the flattened form."""
    lengths: tuple[int, ...]
    """Of each sample, its places before rows are padded."""

    def filled(self, values: Tensor) -> Tensor:
        """Return the values in this form, with 0 elsewhere; gradients flow back."""
        import torch

        size = int(np.prod(self.shape))
        where = torch.from_numpy(self.index).to(values.device)
        return values.new_zeros(size).index_put((where,), values).reshape(self.shape)


def places(rows: RowForm, case: Case, dp_rank: int, cp_rank: int, k: int) -> Places:
    """Of micro-batch ``k`` as that rank has it."""
    each = [*_samples(rows, case, case.layout.micro_batches[dp_rank][k], cp_rank)]
    least = _widest(rows, case, cp_rank) if rows.width == "step" else 0
    return _placed(rows, each, least)


def _placed(rows: RowForm, each: Sequence[tuple[int, Index]], least: int) -> Places:
    lengths = tuple(length for length, _ in each)
    width = max(least, *lengths)
    starts = [*accumulate(lengths, initial=0)]
    shape: tuple[int, ...] = (starts[-1],)
    if rows.kind != "packed":
        shape, left = (len(each), width), rows.side == "left"
        starts = [n * width + (width - own) * left for n, own in enumerate(lengths)]
    index = np.concatenate([start + at for start, (_, at) in zip(starts, each, strict=False)])
    return Places(shape, index.astype(np.int64), lengths)


def _widest(rows: RowForm, case: Case, cp_rank: int) -> int:
    """Of the step's samples, whichever rank they are on."""
    if rows.kind == "padded":
        return max(s.response_length for s in case.step.samples)
    cells = (cell for _, _, cell in case.layout.cells())
    return max(length for cell in cells for length, _ in _samples(rows, case, cell, cp_rank))


def _samples(
    rows: RowForm, case: Case, members: Sequence[int], cp_rank: int
) -> Iterator[tuple[int, Index]]:
    """Return, of each sample, how many places it takes on the rank, and its tokens' places."""
    pieces = visible_pieces(case.step, members, case.layout, cp_rank)
    tokens = [positions([0], [own]) for own in pieces]
    if rows.kind == "padded":
        return ((len(own), np.arange(len(own))) for own in tokens)
    return _sequences(case, members, cp_rank, tokens)


def _sequences(
    case: Case, members: Sequence[int], cp_rank: int, tokens: Sequence[Index]
) -> Iterator[tuple[int, Index]]:
    """Yield tokens where their logits are: one place before their own.

    The last logit has no token. Context-parallel ranks have whole chunks, the padding that makes
    them equal included.
    """
    layout, cp = case.layout, case.layout.cp_size
    samples = [case.step.samples[i] for i in members]
    prompts = [max(s.prompt_length, 1) for s in samples]
    totals = [n + s.response_length for n, s in zip(prompts, samples, strict=True)]
    sliced = cp > 1 and layout.cp_kind != "gathered"
    share, start = -(-sum(totals) // cp), 0
    for n, (prompt, total, own) in enumerate(zip(prompts, totals, tokens, strict=True)):
        at = own + prompt - 1
        if not sliced:
            yield total, at
        elif layout.cp_kind == "contiguous":
            first = cp_rank * share - start
            last = first + share if n == len(totals) - 1 else min(first + share, total)
            yield max(last - max(first, 0), 0), at - max(first, 0)
            start += total
        else:
            widest = rank_width(case.step, members, layout) if layout.cp_kind == "bshd" else total
            q = -(-widest // (2 * cp))
            second = (2 * cp - 1 - cp_rank) * q
            yield 2 * q, np.where(at < second, at - cp_rank * q, at - second + q)
