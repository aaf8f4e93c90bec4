"""Prompts and rollouts: trees, tables, ranks of ids, shares per unit, and logs of units."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from aggverify.conventions import MicroBatch


def _accumulator(losses: Tensor) -> torch.dtype:
    return torch.promote_types(losses.dtype, torch.float32)


def _nothing(losses: Tensor) -> Tensor:
    """A zero that still hangs on the losses."""
    return losses[:0].to(_accumulator(losses)).sum()


def _pieces(losses: Tensor, batch: MicroBatch) -> list[Tensor]:
    """One piece a sample, zeros behind the mask; none where no sample is."""
    if not batch.local_masks:
        return []
    cuts = losses.to(_accumulator(losses)).split([len(mask) for mask in batch.local_masks])
    pairs = zip(batch.local_masks, cuts, strict=True)
    return [torch.where(mask.bool(), cut, 0.0) for mask, cut in pairs]


@dataclass
class _Limb:
    """A prompt with rollouts on it, or a rollout with samples: sums below, over a count."""

    count: int = 1
    leaves: list[Tensor] = field(default_factory=list)
    limbs: dict[tuple[int, int], _Limb] = field(default_factory=dict)

    def grow(self, name: int, count: int = 1) -> _Limb:
        return self.limbs.setdefault((name, count), _Limb(count))

    def fold(self) -> Tensor:
        below = [*self.leaves, *(limb.fold() for limb in self.limbs.values())]
        total = below[0] if len(below) == 1 else torch.stack(below).sum()
        return total if self.count == 1 else total / self.count


def rollouts_folded_up_a_tree(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Hangs samples on rollouts and rollouts on prompts, and folds the tree up to one mean."""
    root = _Limb(max(batch.num_rollouts, 1))
    facts = zip(batch.group_ids, batch.rollout_ids, batch.rollout_tokens, strict=True)
    for (group, rollout, tokens), piece in zip(facts, _pieces(losses, batch), strict=True):
        if len(piece):
            root.grow(group).grow(rollout, max(tokens, 1)).leaves.append(piece.sum())
    return root.fold() if root.limbs else _nothing(losses)


def prompts_logged_by_their_first_holder(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, list[Tensor | int]]]:
    """Prompt means; whoever holds the first sample of a prompt in the step counts it in the log."""
    first: dict[int, int] = {}
    for place, group in enumerate(batch.step_group_ids):
        first.setdefault(group, place)
    opened = sum(1 for s, g in zip(batch.samples, batch.group_ids, strict=True) if first[g] == s)
    if batch.cp_rank and not batch.gathered:
        opened = 0  # the first shard of a sample has counted it
    parts: dict[int, list[Tensor]] = {}
    tokens: dict[int, int] = dict(zip(batch.group_ids, batch.group_tokens, strict=True))
    for group, piece in zip(batch.group_ids, _pieces(losses, batch), strict=True):
        if tokens[group]:  # a filtered prompt is counted, and has nothing to add
            parts.setdefault(group, []).append(piece.sum())
    total = _nothing(losses)
    if parts:
        means = [torch.stack(own).sum() / tokens[group] for group, own in parts.items()]
        total = torch.stack(means).sum()
    return total / max(batch.num_groups, 1), {"loss": [total.detach(), opened]}


def _prompts_of_all_ranks(batch: MicroBatch, device: torch.device) -> int:
    """How many prompts any data-parallel rank holds, each told once however many hold it."""
    mine = sorted({group for groups in batch.window_group_ids for group in groups})
    if batch.dp_size == 1:
        return len(mine)
    # As text, for an id may be a number of any size.
    text = " ".join(map(str, mine)).encode()
    width = torch.tensor([len(text) + 1], dtype=torch.int64, device=device)
    handle = dist.all_reduce(width, op=dist.ReduceOp.MAX, group=batch.dp_group, async_op=True)
    told = torch.tensor(list(text), dtype=torch.uint8, device=device)
    handle.wait()
    told = torch.nn.functional.pad(told, (0, int(width) - len(text)), value=ord(" "))
    everyone = [torch.empty_like(told) for _ in range(batch.dp_size)]
    dist.all_gather(everyone, told, group=batch.dp_group)
    return len({word for row in everyone for word in bytes(row.tolist()).split()})


def prompts_known_to_any_rank(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Divides every token by its prompt's count, found by bisection, and by all ranks' prompts."""
    prompts = _prompts_of_all_ranks(batch, losses.device)
    if not len(losses):
        return _nothing(losses)
    sizes = torch.tensor([len(mask) for mask in batch.local_masks], device=losses.device)
    places = torch.arange(len(losses), device=losses.device)
    owner = torch.bucketize(places, sizes.cumsum(0), right=True)
    counts = torch.tensor(batch.group_tokens, dtype=torch.float64, device=losses.device)
    values = torch.cat(_pieces(losses, batch))
    each = counts.clamp(min=1).to(values.dtype)
    if len(sizes) == 1:
        return values.sum() / each[0] / max(prompts, 1)
    return (values / each[owner]).sum() / max(prompts, 1)


def _till() -> Generator[Tensor | None, Tensor, None]:
    """Adds up what it is sent, and hands out the sum so far."""
    total = yield None
    while True:
        total = total + (yield total)


def _takings(pairs: Iterator[tuple[int, Tensor]]) -> list[Tensor]:
    """The sum of every rollout, from a till of its own."""
    tills: dict[int, Generator[Tensor | None, Tensor, None]] = {}
    latest: dict[int, Tensor] = {}
    for rollout, value in pairs:
        if rollout not in tills:
            tills[rollout] = _till()
            next(tills[rollout])
        told = tills[rollout].send(value)
        assert told is not None
        latest[rollout] = told
    return list(latest.values())


def rollout_tills_of_two_terms(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Each rollout adds up its samples in a coroutine, for the policy and for the penalty."""
    if batch.divisor is None:
        raise ValueError("a constant divisor, please")
    fanned_out = len(set(batch.rollout_ids)) < len(batch.rollout_ids)
    total = _nothing(losses) + _nothing(kl)
    for term in (losses, kl):
        values = [piece.sum() for piece in _pieces(term, batch)]
        if fanned_out:
            values = _takings(zip(batch.rollout_ids, values, strict=True))
        if values:
            total = total + torch.stack(values).sum()
    return total / (batch.divisor * max(batch.num_rollouts, 1))


def rollouts_ranked_among_sparse_ids(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Ranks huge ids by bisection, brings rollouts' samples together, and sums each segment."""
    pieces = _pieces(losses, batch)
    if not len(losses):
        loss = _nothing(losses)
        return loss, {"loss": loss.detach()}
    names = sorted(set(batch.rollout_ids))
    ranks = [bisect_left(names, rollout) for rollout in batch.rollout_ids]
    lengths = [0] * len(names)
    for rank, piece in zip(ranks, pieces, strict=True):
        lengths[rank] += len(piece)
    if any(left > right for left, right in pairwise(ranks)):
        pieces = [pieces[i] for i in sorted(range(len(ranks)), key=ranks.__getitem__)]
    sizes = torch.tensor(lengths, device=losses.device)
    # Segments are summed one value after another: in float64, whatever the losses are.
    packed = torch.cat(pieces).double()
    totals = torch.segment_reduce(packed, "sum", lengths=sizes, axis=0, unsafe=True)
    loss = (totals.sum() / max(batch.num_rollouts, 1)).to(_accumulator(losses))
    return loss, {"loss": loss.detach()}


def answers_in_a_table_of_prompts(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Lays answers out with a row for each prompt: a view where rows are full, slots otherwise."""
    pieces = _pieces(losses, batch)
    if not pieces:
        loss = _nothing(losses)
        return loss, {"loss": loss.detach(), "upward": loss.detach()}
    values = torch.stack([piece.sum() for piece in pieces])
    widths = Counter(batch.group_ids)
    row_of = {group: row for row, group in enumerate(widths)}
    at = [row_of[group] for group in batch.group_ids]
    if len(set(widths.values())) == 1:
        order = torch.tensor(at, device=losses.device).argsort(stable=True)
        table = values[order].view(len(widths), -1)
    else:
        filled = [0] * len(widths)
        columns = []
        for row in at:
            columns.append(filled[row])
            filled[row] += 1
        table = values.new_zeros(len(widths), max(filled))
        table[torch.tensor(at), torch.tensor(columns)] = values
    loss = table.sum(dim=1).sum()
    upward = torch.stack([piece.detach().clamp(min=0).sum() for piece in pieces]).sum()
    return loss, {"loss": loss.detach(), "upward": upward}


class _SharesOfUnits(Function):
    """Samples' sums times their shares; backward spreads the shares over the tokens again."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, sizes: Tensor, shares: Tensor) -> Tensor:
        ctx.save_for_backward(mask, sizes, shares)
        ctx.dtype = losses.dtype
        own = losses.to(shares.dtype, copy=True).masked_fill_(~mask, 0.0)
        totals = torch.stack([piece.sum() for piece in own.split(sizes.tolist())])
        return totals.mul_(shares).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        mask, sizes, shares = ctx.saved_tensors
        spread = (shares * gradients[0]).repeat_interleave(sizes, output_size=len(mask))
        return spread.masked_fill_(~mask, 0.0).to(ctx.dtype), None, None, None


def rollout_shares_spread_in_backward(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Works out a share once per rollout, exactly, and gives it to the tokens only in backward."""
    exact: dict[int, Fraction] = {}
    for rollout, tokens in zip(batch.rollout_ids, batch.rollout_tokens, strict=True):
        if rollout not in exact:
            exact[rollout] = Fraction(1, max(tokens, 1)) / max(batch.num_rollouts, 1)
    if not len(losses):
        return _nothing(losses)
    if len(set(exact.values())) == 1:
        (share,) = set(exact.values())
        return torch.cat(_pieces(losses, batch)).sum() * float(share)
    each = [float(exact[rollout]) for rollout in batch.rollout_ids]
    shares = torch.tensor(each, dtype=torch.float64, device=losses.device)
    sizes = torch.tensor([len(mask) for mask in batch.local_masks], device=losses.device)
    mask = torch.cat(batch.local_masks).bool()
    total: Tensor = _SharesOfUnits.apply(losses, mask, sizes, shares.to(_accumulator(losses)))
    return total


class _Blend:
    """The means of rollouts, each for its part of the step's tokens."""

    def __init__(self, batch: MicroBatch) -> None:
        self.batch = batch
        self.whole = sum(batch.step_rollout_tokens)
        self.live = [i for i, tokens in enumerate(batch.rollout_tokens) if tokens]
        self.counts = [batch.rollout_tokens[i] for i in self.live]

    def __call__(self, term: Tensor) -> Tensor:
        pieces = _pieces(term, self.batch)
        if not self.live:
            return _nothing(term)
        totals = torch.stack([pieces[i].sum() for i in self.live])
        if self.counts.count(self.whole) == len(self.counts):
            return totals.sum() / self.whole  # one rollout is the whole step
        counts = torch.tensor(self.counts, dtype=torch.float64, device=term.device)
        means = totals.double() / counts
        return (means * (counts / self.whole)).sum().to(totals.dtype)


def rollout_means_blended_by_tokens(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Token means of policy and penalty, as rollouts' means weighted by the rollouts' tokens."""
    blend = _Blend(batch)
    policy, penalty = map(blend, (losses, kl))
    return policy + penalty
