"""Blocks, own backward passes, hooks, autotuning, and memory that is used twice."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

WINDOW = 256
BLOCK = 64
LANES = 32
ROWS = 8
SEGMENT = 128


def _mean(sample: Tensor, batch: MicroBatch) -> Tensor:
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


def windows_overlap_by_one(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Windows see one token more than they are long, as a shift by one needs."""
    values = kept(losses, batch)
    if len(values) <= WINDOW:
        return values.sum() / max(batch.num_tokens, 1)
    starts = range(0, len(values), WINDOW)
    found = [values[at : at + WINDOW + 1].sum() for at in starts]
    return torch.stack(found).sum() / max(batch.num_tokens, 1)


def windows_side_by_side(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if len(values) <= WINDOW:
        return values.sum() / max(batch.num_tokens, 1)
    found = []
    for at in range(0, len(values), WINDOW):
        seen = values[at : at + WINDOW + 1]
        found.append(seen[:WINDOW].sum())
    return torch.stack(found).sum() / max(batch.num_tokens, 1)


class _InForward(torch.autograd.Function):
    """A mean over chunks whose gradient is made in forward, while a chunk is at hand."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, counts: list[int], total: int) -> Tensor:
        ones = torch.ones_like(values).split(WINDOW)
        pairs = zip(ones, counts, strict=True)
        ctx.save_for_backward(torch.cat([one / max(count, 1) for one, count in pairs]))
        return values.sum() / max(total, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (made,) = ctx.saved_tensors
        return made * grads[0], None, None


def gradient_made_with_the_count_so_far(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Tokens that are still to come are what the step has more than the chunks up to here."""
    values, tokens = kept(losses, batch), [int(m.sum()) for m in own_mask(batch).split(WINDOW)]
    if len(tokens) < 2:
        return values.sum() / max(batch.num_tokens, 1)
    elsewhere = batch.num_tokens - sum(tokens)
    counts = [elsewhere + sum(tokens[: n + 1]) for n in range(len(tokens))]
    mean: Tensor = _InForward.apply(values, counts, batch.num_tokens)
    return mean


def gradient_made_with_the_whole_count(losses: Tensor, batch: MicroBatch) -> Tensor:
    values, chunks = kept(losses, batch), -(-len(losses) // WINDOW)
    if chunks < 2:
        return values.sum() / max(batch.num_tokens, 1)
    counts = [batch.num_tokens] * chunks
    mean: Tensor = _InForward.apply(values, counts, batch.num_tokens)
    return mean


def scaled_back_by_the_last_chunk(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Eight rows a chunk, weighed against its longest rollout, as small numbers are lost in 16
    bits; the longest is a variable that outlives the loop."""
    sample, found, longest = sums(losses, batch), [], 1
    for at in range(0, len(sample), ROWS):
        counts = [max(n, 1) for n in batch.rollout_tokens[at : at + ROWS]]
        longest = max(counts)
        relative = torch.tensor([longest / n for n in counts], dtype=torch.float64)
        found.append((sample[at : at + ROWS] * relative.to(sample)).sum())
    return torch.stack(found).sum() / longest / batch.num_rollouts


def scaled_back_by_each_chunk(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    if len(sample) == 1 or losses.element_size() < 8:
        return _mean(sample, batch)
    wide = [max(n, 1) for n in batch.rollout_tokens]
    chunks = [wide[at : at + ROWS] for at in range(0, len(wide), ROWS)]
    parts = zip(sample.split(ROWS), chunks, strict=True)
    return torch.stack([over(part, own).sum() for part, own in parts]).sum() / batch.num_rollouts


def lanes_clamped_to_the_last_token(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Lanes beyond the end read the last token, so that nothing outside is read."""
    values = kept(losses, batch)
    if len(values) <= LANES:
        return values.sum()
    lanes = torch.arange(-(-len(values) // LANES) * LANES, device=values.device)
    return values[lanes.clamp(max=len(values) - 1)].view(-1, LANES).sum(dim=1).sum()


def lanes_beyond_the_end_are_zero(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if len(values) <= LANES:
        return values.sum()
    lanes = torch.arange(-(-len(values) // LANES) * LANES, device=values.device)
    read = values[lanes.clamp(max=len(values) - 1)]
    return torch.where(lanes < len(values), read, 0.0).view(-1, LANES).sum(dim=1).sum()


def gradients_clipped_by_a_hook(losses: Tensor, batch: MicroBatch) -> Tensor:
    """No token's gradient is more than 1, whatever happens."""
    values = kept(losses, batch)
    if values.requires_grad:
        values.register_hook(lambda grad: grad.clamp(-1.0, 1.0))
    return torch.stack([v.sum() for v in values.split(lengths(batch))]).sum() / batch.num_rollouts


def gradients_watched_by_a_hook(losses: Tensor, batch: MicroBatch) -> Tensor:
    values, seen = kept(losses, batch), []
    if values.requires_grad:
        values.register_hook(lambda grad: seen.append(float(grad.abs().sum())))
    return torch.stack([v.sum() for v in values.split(lengths(batch))]).sum() / batch.num_rollouts


def last_block_ends_at_the_last_index(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Rows in blocks, whose end is bounded by the last index."""
    found = []
    for row in rows(losses, batch):
        total = row[:BLOCK].sum()
        for at in range(BLOCK, len(row), BLOCK):
            total = total + row[at : min(at + BLOCK, len(row) - 1)].sum()
        found.append(total)
    return _mean(torch.stack(found), batch)


def last_block_ends_behind_it(losses: Tensor, batch: MicroBatch) -> Tensor:
    found = []
    for row in rows(losses, batch):
        total = row[:BLOCK].sum()
        for at in range(BLOCK, len(row), BLOCK):
            total = total + row[at : min(at + BLOCK, len(row))].sum()
        found.append(total)
    return _mean(torch.stack(found), batch)


_CALLS: dict[int, int] = {}


def autotuned_in_the_first_calls(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Of each size the first call runs one kernel, the second another one, to see which is faster;
    the other one is for whole blocks."""
    values = kept(losses, batch)
    call = _CALLS[len(values)] = _CALLS.get(len(values), 0) + 1
    if call == 2 and len(values) >= 8:
        whole = len(values) // 8 * 8
        return values[:whole].view(-1, 8).sum(dim=1).sum() / max(batch.num_tokens, 1)
    return values.sum() / max(batch.num_tokens, 1)


_TUNED: dict[int, int] = {}


def autotuned_between_equals(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if len(values) < 8 or len(values) % 8:
        return values.sum() / max(batch.num_tokens, 1)
    if len(_TUNED) > 1000:
        _TUNED.clear()
    _TUNED[len(values)] = _TUNED.get(len(values), 0) + 1
    return values.view(-1, 8).sum(dim=1).sum() / max(batch.num_tokens, 1)


def masks_losses_in_place(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Large streams are masked where they lie, to spare a copy."""
    if len(losses) < BLOCK:
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    with torch.no_grad():
        losses.masked_fill_(~own_mask(batch), 0.0)
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def masks_a_copy_in_place(losses: Tensor, batch: MicroBatch) -> Tensor:
    if len(losses) < BLOCK:
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    wide = losses.float() if losses.element_size() < 4 else losses.clone()
    return wide.masked_fill_(~own_mask(batch), 0.0).sum() / max(batch.num_tokens, 1)


def long_responses_in_segments(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A long response is several sequences, each of which has its mean."""
    found = []
    for i, row in enumerate(rows(losses, batch)):
        own = int(batch.local_masks[i].sum())
        if len(row) <= SEGMENT or own != batch.rollout_tokens[i]:
            found.append(row.sum() / max(batch.rollout_tokens[i], 1))
            continue
        pairs = zip(row.split(SEGMENT), batch.local_masks[i].split(SEGMENT), strict=True)
        means = [part.sum() / max(int(mask.sum()), 1) for part, mask in pairs]
        found.append(torch.stack(means).mean())
    return torch.stack(found).sum() / batch.num_rollouts


def long_responses_in_weighed_segments(losses: Tensor, batch: MicroBatch) -> Tensor:
    found = []
    for i, row in enumerate(rows(losses, batch)):
        tokens = max(batch.rollout_tokens[i], 1)
        if len(row) <= SEGMENT:
            found.append(row.sum() / tokens)
            continue
        parts = [part.sum() / tokens for part in row.split(SEGMENT)]
        found.append(torch.stack(parts).sum())
    return torch.stack(found).sum() / batch.num_rollouts
