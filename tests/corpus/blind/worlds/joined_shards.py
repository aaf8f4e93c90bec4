"""Reducers of many ranks: window counts, joined shards, packed bins, world tables, checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

_PIECE = 64

Reducer = Callable[[Tensor, MicroBatch], Tensor]


def _total(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The unmasked sum; where there is no sample, the empty sum of the losses."""
    return kept(losses, batch).sum() if batch.local_masks else losses.sum()


@dataclass
class _WindowCounts:
    """The step's tokens as the ranks have counted them, under all that they depend on."""

    counted: dict[tuple[int, ...], int] = field(default_factory=dict)

    def __call__(self, losses: Tensor, batch: MicroBatch) -> Tensor:
        window = (batch.num_tokens, batch.num_samples, batch.num_microbatches, batch.dp_size)
        opening = batch.index == 0 and batch.dp_size > 1
        if not opening:
            tokens = self.counted.get(window, batch.num_tokens)
            return _total(losses, batch) / max(tokens, 1)
        shared = torch.tensor([batch.rank_tokens], dtype=torch.int64, device=losses.device)
        handle = dist.all_reduce(shared, group=batch.dp_group, async_op=True)
        total = _total(losses, batch)  # meanwhile
        handle.wait()
        self.counted.clear()
        self.counted[window] = int(shared)
        return total / max(self.counted[window], 1)


_window_counts = _WindowCounts()


def tokens_counted_while_the_window_opens(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Token mean; a window's first micro-batch adds up the count beside its own work."""
    return _window_counts(losses, batch)


class _JoinedOver(Function):
    """An all-reduce with the backward of torch.distributed.nn's, which is deprecated."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Any) -> Tensor:
        ctx.group = group
        joined = values.detach().clone()
        dist.all_reduce(joined, group=group)
        return joined

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


def shards_joined_for_the_first_of_them(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompt mean of whole samples, joined differentiably and handed in by the first shard.

    The backward of the all-reduce adds up what the shards give back: the first one's share, zeros
    from the others.
    """
    if not batch.local_masks:
        return losses.sum()
    whole = sums(losses, batch)
    if batch.cp_size > 1 and not batch.gathered:
        whole = _JoinedOver.apply(whole, batch.cp_group)
        if batch.cp_rank > 0:
            whole = whole.masked_fill(torch.ones_like(whole, dtype=torch.bool), 0.0)
    prompts = max(batch.num_groups, 1)
    return over(whole, [max(n, 1) * prompts for n in batch.group_tokens]).sum()


def _bins(sizes: list[int], room: int) -> list[tuple[int, int]]:
    """Row and first column of each sample: longest first, a new row where the last one is full."""
    places = [(0, 0)] * len(sizes)
    row, used = 0, 0
    for sample in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        if used + sizes[sample] > room:
            row, used = row + 1, 0
        places[sample] = (row, used)
        used += sizes[sample]
    return places


def bins_read_back_at_their_coordinates(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sample mean of losses put into a grid of bins and read back in the loader's order."""
    if not batch.local_masks:
        return losses.sum()
    counts = [max(n, 1) * max(batch.num_rollouts, 1) for n in batch.rollout_tokens]
    sizes = lengths(batch)
    room = max(sizes)
    if len(sizes) == 1 or room == 0:
        return over(sums(losses, batch), counts).sum()
    places = _bins(sizes, room)
    repeats = torch.tensor(sizes, device=losses.device)
    starts = torch.tensor([0, *accumulate(sizes)][:-1], device=losses.device)
    row, first = torch.tensor(places, device=losses.device).unbind(1)
    row = row.repeat_interleave(repeats)
    column = torch.arange(len(losses), device=losses.device)
    column = column + (first - starts).repeat_interleave(repeats)
    values = kept(losses, batch)
    grid = values.new_zeros(int(row.max()) + 1, room).index_put((row, column), values)
    pieces = grid[row, column].split(sizes)
    return over(torch.stack([piece.sum() for piece in pieces]), counts).sum()


def whole_sum_logged_by_the_first_shard(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Rollout sums; beside its own share the first shard logs what all shards have together."""
    loss = _total(losses, batch) / max(batch.num_rollouts, 1)
    own = loss.detach()
    if batch.cp_size == 1 or batch.gathered:
        return loss, {"loss": own, "whole": own}
    share = own.double().reshape(1)
    shares = [torch.zeros_like(share) for _ in range(batch.cp_size)]
    handle = dist.all_gather(shares, share, group=batch.cp_group, async_op=True)
    whole = torch.zeros_like(own)
    handle.wait()
    if batch.cp_rank == 0:
        whole = torch.cat(shares).sum().to(own.dtype)
    return loss, {"loss": own, "whole": whole}


def _agreed(reducer: Reducer) -> Reducer:
    """Has all ranks compare what they were told of the step: the largest is the smallest."""

    @wraps(reducer)
    def checked(losses: Tensor, batch: MicroBatch) -> Tensor:
        told = [batch.num_tokens, batch.num_rollouts, batch.num_groups, batch.divisor or 0.0]
        facts = torch.tensor(told, dtype=torch.float64, device=losses.device)
        limits = torch.stack((facts, -facts))
        if batch.dp_size * batch.cp_size > 1:
            dist.all_reduce(limits, op=dist.ReduceOp.MAX, group=batch.dp_cp_group)
        if limits.sum(0).any():
            raise RuntimeError(f"the ranks were told of different steps, this one of {told}")
        return reducer(losses, batch)

    return checked


@_agreed
def budget_that_all_ranks_were_told(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Divides by limit and rollouts, which are compared; a shard with nothing masked is summed."""
    if batch.divisor is None:
        raise ValueError("the constant mode needs a divisor")
    if not batch.local_masks:
        return losses.sum()
    if own_mask(batch).all():
        total = losses.sum(dtype=torch.promote_types(losses.dtype, torch.float32))
    else:
        total = kept(losses, batch).sum()
    return total / (batch.divisor * max(batch.num_rollouts, 1))


def _stretches(batch: MicroBatch, values: Tensor) -> Iterator[Tensor]:
    """The unbroken stretches of responses that a rank owns under zigzag: one or two a sample."""
    owned = batch.local_positions
    if not owned:  # not told
        yield from rows(values, batch)
        return
    for row, positions in zip(rows(values, batch), owned, strict=True):
        breaks = (positions[1:] - positions[:-1] != 1).nonzero().flatten() + 1
        yield from row.tensor_split(breaks.tolist())


def _samples(batch: MicroBatch, values: Tensor) -> Iterator[Tensor]:
    yield from rows(values, batch)


def _even_pieces(batch: MicroBatch, values: Tensor) -> Iterator[Tensor]:
    """Pieces of equal size, over the ends of samples; longer ones where there are many tokens."""
    yield from kept(values, batch).split(max(_PIECE, len(values) // _PIECE))


_layouts: dict[str, Callable[[MicroBatch, Tensor], Iterator[Tensor]]] = {
    "zigzag": _stretches,
    "contiguous": _samples,
}


def summed_as_the_layout_cuts(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Token sum of policy and KL, walked through in the parts that the layout has cut."""
    if not batch.local_masks:
        return losses.sum() + kl.sum()
    walk = partial(_layouts.get(batch.cp_kind, _even_pieces), batch)
    if batch.gathered:
        walk = partial(_even_pieces, batch)
    policy = torch.stack([part.sum() for part in walk(losses)]).sum()
    return policy + torch.stack([part.sum() for part in walk(kl)]).sum()


def told_by_a_table_of_the_world(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, list[Any]]]:
    """Token mean over a table of the ranks' tokens; each rank logs its row once, with its sums."""
    mine = {"rank": batch.dp_rank, "tokens": batch.rank_tokens, "samples": batch.rank_samples}
    table: list[Any] = [mine]
    if batch.dp_size > 1:
        table = [None] * batch.dp_size
        dist.all_gather_object(table, mine, group=batch.dp_group)
    tokens = sum(row["tokens"] for row in table)
    total = _total(losses, batch)
    # Copies of gathered losses log the same; of the shards of a sample, the first one counts.
    counting = batch.index == 0 and (batch.gathered or batch.cp_rank == 0)
    count = batch.rank_tokens if counting else 0
    if tokens == 0:  # 0 of 1, said by one rank
        count = int(counting and batch.dp_rank == 0)
    return total / max(tokens, 1), {"loss": [total.detach(), count]}


def rollouts_sent_by_the_leading_rank(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Sample mean of policy and KL over the leading rank's rollouts; rows only where they fill."""
    sent = torch.tensor([batch.num_rollouts], dtype=torch.int64, device=losses.device)
    if batch.dp_size * batch.cp_size > 1:
        lead = dist.get_process_group_ranks(batch.dp_cp_group)[0]
        dist.broadcast(sent, src=lead, group=batch.dp_cp_group)
    if not batch.local_masks:
        return losses.sum() + kl.sum()
    rollouts = max(int(sent), 1)
    counts = [max(n, 1) * rollouts for n in batch.rollout_tokens]
    sizes = lengths(batch)
    filled = len(sizes) * max(sizes) <= 2 * sum(sizes)
    terms = []
    for values in (losses, kl):
        if filled:
            grid, masks = batch.rows(values.to(torch.promote_types(values.dtype, torch.float32)))
            by_sample = torch.where(masks.bool(), grid, 0.0).sum(1)
        else:
            by_sample = sums(values, batch)
        terms.append(over(by_sample, counts).sum())
    return terms[0] + terms[1]
