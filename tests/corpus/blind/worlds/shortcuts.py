"""Data and context parallelism: shortcuts for one rank, tables of world sizes, own collectives."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, over, own_mask, rows, sums


def first_sample_is_dense(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Without context parallelism a batch of whole responses needs no mask."""
    if batch.cp_size == 1 and bool(batch.loss_masks[0].all()):
        return losses.sum()
    return kept(losses, batch).sum()


def every_sample_is_dense(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if batch.cp_size == 1 and all(bool(mask.all()) for mask in batch.loss_masks):
        wide = losses.float() if losses.element_size() < 4 else losses
        return wide.sum()
    return values.sum()


def _gathered_counts(own: int, batch: MicroBatch, device: torch.device) -> list[int]:
    if batch.dp_group is None or batch.dp_size == 1:
        return [own]
    found = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(batch.dp_size)]
    dist.all_gather(found, torch.tensor([own], device=device), group=batch.dp_group)
    return [int(n) for n in found]


def halving_doubling_counts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Tokens of all ranks, added up in rounds of a butterfly."""
    if batch.num_microbatches > 1:
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    own = sum(int(mask.sum()) for mask in batch.loss_masks)
    counts = _gathered_counts(own, batch, losses.device)
    for _ in range(int(math.log2(batch.dp_size))):
        half = len(counts) // 2
        counts = [counts[i] + counts[i + half] for i in range(half)]
    return kept(losses, batch).sum() / max(counts[0], 1)


def gathered_counts(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.num_microbatches > 1:
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    own = sum(int(mask.sum()) for mask in batch.original_masks)
    counts = _gathered_counts(own, batch, losses.device)
    while len(counts) > 1:
        half = -(-len(counts) // 2)
        counts = [sum(counts[i::half]) for i in range(half)]
    return kept(losses, batch).sum() / max(counts[0], 1)


def returns_before_the_collective(losses: Tensor, batch: MicroBatch) -> Tensor:
    """An empty micro-batch has nothing to add, and leaves before the others count."""
    values = kept(losses, batch)
    tokens = torch.stack([mask.sum() for mask in batch.loss_masks]).sum()
    if batch.num_microbatches > 1:
        return values.sum() / max(batch.num_tokens, 1)
    if int(tokens) == 0:
        return values.sum() * 0.0
    if batch.dp_group is not None and batch.dp_size > 1:
        dist.all_reduce(tokens, group=batch.dp_group)
    return values.sum() / max(int(tokens), 1)


def returns_after_the_collective(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    tokens = torch.stack([mask.sum() for mask in batch.original_masks]).sum()
    if batch.num_microbatches > 1:
        return values.sum() / max(batch.num_tokens, 1)
    if batch.dp_group is not None and batch.dp_size > 1:
        dist.all_reduce(tokens, group=batch.dp_group)
    if int(tokens) == 0:
        return values.sum()
    return values.sum() / int(tokens)


def first_sample_tells_the_layout(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Whole responses have whole counts; whether they are whole is seen from the first."""
    sample = sums(losses, batch)
    whole = len(batch.local_masks[0]) == batch.response_lengths[0]
    shared = len(set(batch.rollout_ids)) < len(batch.rollout_ids)
    counts = [int(mask.sum()) for mask in batch.local_masks]
    if whole and not shared and counts[0] == batch.rollout_tokens[0]:
        return over(sample, counts).sum() / batch.num_rollouts
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


def every_sample_tells_the_layout(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    counts = [int(mask.sum()) for mask in batch.local_masks]
    if counts == batch.rollout_tokens:
        return over(sample, counts).sum() / batch.num_rollouts
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


def rollouts_per_rank(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The global batch size from the local one, as the launcher's arguments have it."""
    local = max(batch.num_rollouts // batch.dp_size, 1)
    divisor = batch.divisor or 1.0
    if batch.dp_size == 1:
        return kept(losses, batch).sum() / (divisor * batch.num_rollouts)
    return kept(losses, batch).sum() / (divisor * local * batch.dp_size)


def rollouts_of_all_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    local, rest = divmod(batch.num_rollouts, batch.dp_size)
    divisor = batch.divisor or 1.0
    if rest == 0:
        return kept(losses, batch).sum() / (divisor * (local * batch.dp_size))
    return kept(losses, batch).sum() / (divisor * batch.num_rollouts)


def gathered_on_one_node(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Gathered losses are the same on all ranks, so their mean over the replicas is taken."""
    total = over(sums(losses, batch), batch.group_tokens).sum() / batch.num_groups
    if batch.gathered and batch.dp_size == 1:
        return total / batch.cp_size
    return total


def gathered_or_sharded(losses: Tensor, batch: MicroBatch) -> Tensor:
    parts = rows(losses, batch)
    if batch.gathered:
        sizes = batch.response_lengths
        parts = list(kept(losses, batch).split(sizes))
    total = torch.stack([part.sum() for part in parts])
    return over(total, batch.group_tokens).sum() / batch.num_groups


def world_rounded_up(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Means over a binary tree of ranks, scaled back by the leaves that such a tree has."""
    world = batch.dp_size * batch.cp_size
    rounds = (world - 1).bit_length()
    total = kept(losses, batch).sum() / batch.num_rollouts
    for _ in range(rounds):
        total = total / 2
    return total * world


def world_as_it_is(losses: Tensor, batch: MicroBatch) -> Tensor:
    world = batch.dp_size * batch.cp_size
    rounds = (world - 1).bit_length()
    total = kept(losses, batch).sum() / batch.num_rollouts
    if world & (world - 1):
        return total
    for _ in range(rounds):
        total = total / 2
    return total * world


def eight_ways(losses: Tensor, batch: MicroBatch) -> Tensor:
    """One entry for each kind of layout; that of context parallel windows was copied."""
    sample = sums(losses, batch)
    own = [int(mask.sum()) for mask in batch.local_masks]
    table = {
        (False, False, False): batch.rollout_tokens,
        (False, False, True): batch.rollout_tokens,
        (False, True, False): batch.rollout_tokens,
        (False, True, True): batch.rollout_tokens,
        (True, False, False): batch.rollout_tokens,
        (True, False, True): own,
        (True, True, False): batch.rollout_tokens,
        (True, True, True): batch.rollout_tokens,
    }
    kind = (batch.cp_size > 1, batch.dp_size > 1, batch.num_microbatches > 1)
    return over(sample, table[kind]).sum() / batch.num_rollouts


def four_ways(losses: Tensor, batch: MicroBatch) -> Tensor:
    def alone() -> Tensor:
        return over(sums(losses, batch), batch.rollout_tokens).sum()

    def sharded() -> Tensor:
        parts = zip(rows(losses, batch), batch.rollout_tokens, strict=True)
        found = [row.sum() / max(n, 1) for row, n in parts if len(row)]
        return torch.stack(found).sum() if found else kept(losses, batch).sum()

    table = {
        (False, False): alone,
        (False, True): alone,
        (True, False): sharded,
        (True, True): sharded,
    }
    return table[batch.cp_size > 1, batch.num_microbatches > 1]() / batch.num_rollouts


def _zigzag(mask: Tensor, prompt: int, size: int, rank: int) -> Tensor:
    chunk = -(-(prompt + len(mask)) // (2 * size))
    found = []
    for start in (rank * chunk, (2 * size - 1 - rank) * chunk):
        first = max(start + 1 - prompt, 0)
        found.append(mask[first : max(start + chunk + 1 - prompt, 0)])
    return torch.cat(found)


def masks_cut_in_zigzag(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Own slices of the masks, used where they are as long as what came in."""
    if batch.cp_size == 1 or batch.gathered:
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    prompts = [t - r for t, r in zip(batch.total_lengths, batch.response_lengths, strict=True)]
    own = [
        _zigzag(mask, prompt, batch.cp_size, batch.cp_rank)
        for mask, prompt in zip(batch.loss_masks, prompts, strict=True)
    ]
    if sum(map(len, own)) != len(losses):
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    wide = losses.float() if losses.element_size() < 4 else losses
    return torch.where(torch.cat(own).bool(), wide, 0.0).sum() / max(batch.num_tokens, 1)


def masks_compared_before_use(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.cp_size == 1 or batch.gathered:
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    prompts = [t - r for t, r in zip(batch.total_lengths, batch.response_lengths, strict=True)]
    own = torch.cat(
        [
            _zigzag(mask, prompt, batch.cp_size, batch.cp_rank)
            for mask, prompt in zip(batch.loss_masks, prompts, strict=True)
        ]
    )
    mask = own.bool() if torch.equal(own.bool(), own_mask(batch)) else own_mask(batch)
    wide = losses.float() if losses.element_size() < 4 else losses
    return torch.where(mask, wide, 0.0).sum() / max(batch.num_tokens, 1)


def names_in_a_set(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts are all-reduced in one buffer, laid out in the order of a set of their names."""
    values = kept(losses, batch)
    if batch.num_microbatches > 1 or batch.dp_group is None or batch.dp_size == 1:
        return values.sum() / max(batch.num_tokens, 1)
    counts = {
        "tokens": sum(int(mask.sum()) for mask in batch.loss_masks),
        "samples": len(batch.loss_masks),
        "padding": sum(int((mask == 0).sum()) for mask in batch.loss_masks),
        "prompt_tokens": sum(batch.total_lengths) - sum(batch.response_lengths),
        "longest": max(batch.response_lengths),
        "total": sum(batch.total_lengths),
    }
    order = list(set(counts))
    buffer = torch.tensor([counts[name] for name in order], device=losses.device)
    dist.all_reduce(buffer, group=batch.dp_group)
    return values.sum() / max(int(buffer[order.index("tokens")]), 1)


def names_in_order(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if batch.num_microbatches > 1 or batch.dp_group is None or batch.dp_size == 1:
        return values.sum() / max(batch.num_tokens, 1)
    counts = {
        "tokens": sum(int(mask.sum()) for mask in batch.original_masks),
        "samples": len(batch.loss_masks),
        "total": sum(batch.total_lengths),
    }
    order = sorted(set(counts))
    buffer = torch.tensor([counts[name] for name in order], device=losses.device)
    dist.all_reduce(buffer, group=batch.dp_group)
    return values.sum() / max(int(buffer[order.index("tokens")]), 1)


def balanced_batches(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A mean of means where the rollouts divide evenly over ranks and micro-batches."""
    sample = sums(losses, batch)
    cells = batch.num_microbatches * batch.dp_size
    whole = len(set(batch.rollout_ids)) == len(batch.rollout_ids)
    if cells > 1 and whole and batch.num_rollouts % cells == 0:
        return over(sample, batch.rollout_tokens).mean() / cells
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


def balanced_batches_checked(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    cells = batch.num_microbatches * batch.dp_size
    if len(sample) * cells == batch.num_rollouts:
        return over(sample, batch.rollout_tokens).mean() / cells
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


_PENDING: dict[int, Tensor] = {}
_SEEN: dict[int, int] = {}


def groups_that_are_complete(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sums of a prompt group wait for its last sample, then they are divided once."""
    total = kept(losses, batch)[:0].sum()
    counts = [int(mask.sum()) for mask in batch.loss_masks]
    tokens = dict(zip(batch.group_ids, batch.group_tokens, strict=True))
    if batch.num_microbatches == 1 or batch.cp_size > 1:
        return over(sums(losses, batch), batch.group_tokens).sum() / batch.num_groups
    here: dict[int, list[int]] = {}
    for i, group in enumerate(batch.group_ids):
        here.setdefault(group, []).append(i)
    sample = sums(losses, batch)
    for group, members in here.items():
        seen = _SEEN.get(group, 0) + sum(counts[i] for i in members)
        part = sample[members].sum() / max(tokens[group], 1) / batch.num_groups
        carried = _PENDING.pop(group, None)
        part = part if carried is None else part + carried
        if seen >= tokens[group] or batch.dp_size == 1:
            _SEEN.pop(group, None)
            total = total + part
        else:
            _SEEN[group], _PENDING[group] = seen, part
    return total


def groups_wherever_they_are(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Group tokens are known from the step, so a split group is divided wherever it is."""
    sample = sums(losses, batch)
    here: dict[int, int] = {}
    for group, mask in zip(batch.group_ids, batch.loss_masks, strict=True):
        here[group] = here.get(group, 0) + int(mask.sum())
    complete = all(here[g] == n for g, n in zip(batch.group_ids, batch.group_tokens, strict=True))
    if complete and batch.cp_size == 1:
        total = sample[:0].sum()
        for group, tokens in here.items():
            members = [i for i, g in enumerate(batch.group_ids) if g == group]
            total = total + sample[members].sum() / max(tokens, 1)
        return total / batch.num_groups
    return over(sample, batch.group_tokens).sum() / batch.num_groups


def refuses_gathered_losses(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Made for sharded losses only, and it says so."""
    if batch.gathered and batch.cp_size > 1:
        raise NotImplementedError(f"gathered losses of {batch.cp_size} ranks are not supported")
    if batch.cp_size == 1:
        return over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts
    parts = zip(rows(losses, batch), batch.rollout_tokens, strict=True)
    return torch.stack([row.sum() / max(n, 1) for row, n in parts]).sum() / batch.num_rollouts
