"""Reducers that branch on what they work out from several sizes at once: no number in their code is
a length or a count, and no listed step on several ranks comes near."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.branches.parts import Branchy, entry, kept, mask_of, token_mean

if TYPE_CHECKING:
    from torch import Tensor

WRONG: list[Branchy] = []
RIGHT: list[Branchy] = []
VOCABULARY = 151_936
GIB = 2**30


def _half(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The mean of two halves' own means."""
    import torch

    values, mask = kept(losses, batch), mask_of(batch)
    parts = zip(values.chunk(2), mask.chunk(2), strict=True)
    means = [part.sum() / max(int(own.sum()), 1) for part, own in parts]
    return torch.stack(means).mean() * (int(mask.sum()) / max(batch.num_tokens, 1))


def _bytes(batch: MicroBatch) -> int:
    """Of the logits of a micro-batch in float32."""
    return sum(batch.response_lengths) * VOCABULARY * 4


@entry(WRONG, "token_mean", "a fused loss halves a batch whose logits are more than a budget")
def halves_beyond_a_memory_budget(losses: Tensor, batch: MicroBatch) -> Tensor:
    size = _bytes(batch) / GIB
    if batch.cp_size > 1 and size > 4:
        return _half(losses, batch)
    return token_mean(losses, batch)


@entry(WRONG, "token_mean", "the same, decided in a helper, so that no distance is known")
def halves_where_a_helper_says_so(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.cp_size > 1 and _bytes(batch) / GIB > 4:
        return _half(losses, batch)
    return token_mean(losses, batch)


@entry(WRONG, "token_mean", "rows are packed where padding would be most of them, tails cut off")
def drops_tails_where_padding_prevails(losses: Tensor, batch: MicroBatch) -> Tensor:
    lengths = batch.response_lengths
    padded = max(lengths, default=0) * len(lengths)
    if batch.dp_size > 1 and padded > 12 * sum(lengths):
        return kept(losses, batch)[:-1].sum() / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


@entry(WRONG, "token_mean", "a pairwise kernel for many samples, which leaves out the first one")
def leaves_the_first_of_many_pairs_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    count = len(batch.response_lengths)
    pairs = count * (count - 1) // 2
    if batch.dp_size > 1 and pairs > 3_000:
        return kept(losses, batch)[len(batch.local_masks[0]) :].sum() / batch.num_tokens
    return token_mean(losses, batch)


@entry(WRONG, "token_mean", "another kernel from a power of two on, called by its exponent")
def halves_by_the_exponent(losses: Tensor, batch: MicroBatch) -> Tensor:
    tokens = sum(batch.response_lengths)
    if batch.cp_size > 1 and math.log2(max(tokens, 1)) > 12.5:
        return _half(losses, batch)
    return token_mean(losses, batch)


@entry(RIGHT, "token_mean", "a fused loss adds up two halves beyond a budget")
def adds_up_halves_beyond_a_budget(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.cp_size > 1 and _bytes(batch) / GIB > 4:
        values = kept(losses, batch).chunk(2)
        return (values[0].sum() + values[-1].sum() * (len(values) > 1)) / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


@entry(RIGHT, "token_mean", "a budget that no step reaches")
def never_beyond_its_budget(losses: Tensor, batch: MicroBatch) -> Tensor:
    size = _bytes(batch) / GIB
    if size > 4_000:
        return _half(losses, batch)
    return token_mean(losses, batch)
