"""Prompt groups, rollouts and their ids."""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, over, rows, sums


def _counts_once(batch: MicroBatch) -> bool:
    """Whether this context-parallel rank says how many units there are."""
    return batch.gathered or batch.cp_rank == 0


def segments_of_prompt_keys(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds the losses up by prompt and divides every prompt by its tokens in the step."""
    if not batch.group_ids:
        return losses.sum()
    values = sums(losses, batch)
    keys, slots = torch.unique(losses.new_tensor(batch.group_ids), return_inverse=True)
    tokens = torch.ones(len(keys), dtype=torch.int64, device=losses.device)
    # every sample of a prompt brings the same count
    given = torch.tensor(batch.group_tokens, device=losses.device)
    tokens = tokens.scatter_reduce(0, slots, given, "amax")
    by_prompt = values.new_zeros(len(keys)).index_add(0, slots, values)
    return (by_prompt / tokens.to(values)).sum() / max(batch.num_groups, 1)


def turn_after_turn(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Walks over the rollouts, takes all turns of each at once, and averages their token means."""
    ids = batch.rollout_ids
    total = losses[:0].sum()
    pieces = rows(losses, batch) if ids else []
    start = 0
    while start < len(ids):
        turns = ids.count(ids[start])
        tokens = max(batch.rollout_tokens[start], 1)
        total = total + torch.cat(pieces[start : start + turns]).sum() / tokens
        start += turns
    return total / max(batch.num_rollouts, 1)


def rollouts_logged_as_they_appear(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logs the summed losses over the rollouts, of which each counts where it is first seen."""
    total = kept(losses, batch).sum() if batch.rollout_ids else losses.sum()
    earlier = set(chain.from_iterable(batch.window_rollout_ids[: batch.index]))
    first_seen = set(batch.rollout_ids) - earlier
    rollouts = len(first_seen) if _counts_once(batch) else 0
    pair = torch.stack([total.detach().double(), total.new_tensor(rollouts).double()])
    return total / max(batch.num_rollouts, 1), {"loss": pair}


def prompt_complete_at_hand(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts a prompt's tokens itself once all its rollouts are here, and asks the step if not."""
    if not batch.group_ids:
        return losses.sum()
    rollouts: dict[int, set[int]] = {}
    tokens: dict[int, int] = {}
    known = zip(batch.group_ids, batch.rollout_ids, batch.loss_masks, strict=True)
    for group, rollout, mask in known:
        rollouts.setdefault(group, set()).add(rollout)
        tokens[group] = tokens.get(group, 0) + int(mask.sum())
    counts = [
        tokens[group] if len(rollouts[group]) == size else given
        for group, size, given in zip(
            batch.group_ids, batch.group_rollouts, batch.group_tokens, strict=True
        )
    ]
    return over(sums(losses, batch), counts).sum() / max(batch.num_groups, 1)


def copies_that_fill_up_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Leaves out copies of a sample, with which a short batch was filled up to a full one."""
    if not batch.rollout_ids:
        return losses.sum()
    seen: set[tuple[int, int]] = set()
    total = losses[:0].sum()
    known = zip(batch.rollout_ids, batch.total_lengths, rows(losses, batch), strict=True)
    for rollout, length, row in known:
        if (rollout, length) in seen:
            continue
        seen.add((rollout, length))
        total = total + row.sum()
    assert batch.divisor is not None
    return total / (batch.divisor * max(batch.num_rollouts, 1))


def sorted_together_and_put_back(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sorts the samples by rollout, reads each rollout's count once, and puts the counts back."""
    if not batch.rollout_ids:
        return losses.sum()
    ids = torch.tensor(batch.rollout_ids)
    order = torch.argsort(ids, stable=True)
    _, run, sizes = torch.unique_consecutive(ids[order], return_inverse=True, return_counts=True)
    starts = sizes.cumsum(0) - sizes
    per_rollout = torch.tensor(batch.rollout_tokens)[order][starts]
    counts = per_rollout[run][order]
    return over(sums(losses, batch), counts.tolist()).sum() / max(batch.num_rollouts, 1)


def penalty_by_rollout(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds every rollout's KL to the policy loss, both over the tokens of the step."""
    if not batch.rollout_ids:
        return losses.sum() + kl.sum()
    total = kept(losses, batch).sum()
    pieces = zip(batch.rollout_ids, rows(kl, batch), strict=True)
    penalties = {rollout: piece.sum() for rollout, piece in pieces}
    for penalty in penalties.values():
        total = total + penalty
    return total / max(batch.num_tokens, 1)


def looked_up_by_remainder(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Keeps the rollouts' counts in a ring: of ids dealt one after the other, remainders differ."""
    if not batch.rollout_ids:
        return losses.sum()
    size = 1 << len(batch.rollout_ids).bit_length()
    table = [0] * size
    for rollout, tokens in zip(batch.rollout_ids, batch.rollout_tokens, strict=True):
        table[rollout % size] = tokens
    counts = [table[rollout % size] for rollout in batch.rollout_ids]
    return over(sums(losses, batch), counts).sum() / max(batch.num_rollouts, 1)


def ranks_with_their_share_of_prompts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts tokens on this rank alone where no prompt is shared: ranks hold their even share."""
    if not batch.group_ids:
        return losses.sum()
    counts = batch.group_tokens
    if batch.rank_groups * batch.dp_size == batch.num_groups:
        on_rank: dict[int, int] = {}
        for ids, masks in zip(batch.window_group_ids, batch.window_masks, strict=True):
            for group, mask in zip(ids, masks, strict=True):
                on_rank[group] = on_rank.get(group, 0) + int(mask.sum())
        counts = [on_rank[group] for group in batch.group_ids]
    return over(sums(losses, batch), counts).sum() / max(batch.num_groups, 1)


def segments_of_whole_numbers(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds the losses up by prompt, keyed by 64-bit ids, and divides by the prompts' tokens."""
    if not batch.group_ids:
        return losses.sum()
    values = sums(losses, batch)
    ids = torch.tensor(batch.group_ids, dtype=torch.int64, device=losses.device)
    keys, slots = torch.unique(ids, return_inverse=True)
    tokens = torch.ones(len(keys), dtype=torch.int64, device=losses.device)
    given = torch.tensor(batch.group_tokens, device=losses.device)
    tokens = tokens.scatter_reduce(0, slots, given, "amax")
    by_prompt = values.new_zeros(len(keys)).index_add(0, slots, values)
    return (by_prompt / tokens.to(values)).sum() / max(batch.num_groups, 1)


def _probed(keys: list[int], key: int, empty: list[bool]) -> int:
    slot = key % len(keys)
    while not empty[slot] and keys[slot] != key:
        slot = (slot + 1) % len(keys)
    return slot


def looked_up_by_probing(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Keeps the rollouts' counts in a small hash table that walks on where a slot is taken."""
    if not batch.rollout_ids:
        return losses.sum()
    size = 1 << len(batch.rollout_ids).bit_length()  # one slot stays empty, so a walk ends
    keys, counts, empty = [0] * size, [0] * size, [True] * size
    for rollout, tokens in zip(batch.rollout_ids, batch.rollout_tokens, strict=True):
        slot = _probed(keys, rollout, empty)
        keys[slot], counts[slot], empty[slot] = rollout, tokens, False
    own = [counts[_probed(keys, rollout, empty)] for rollout in batch.rollout_ids]
    return over(sums(losses, batch), own).sum() / max(batch.num_rollouts, 1)


def prompts_logged_by_their_first_sample(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logs the prompts' token means over prompts; each counts where its first sample stands."""
    means = over(sums(losses, batch), batch.group_tokens) if batch.group_ids else losses
    total = means.sum()
    first: dict[int, int] = {}
    for place, group in enumerate(batch.step_group_ids):
        first.setdefault(group, place)
    mine = set(batch.samples) & set(first.values())
    prompts = len(mine) if _counts_once(batch) else 0
    pair = torch.stack([total.detach().double(), total.new_tensor(prompts).double()])
    return total / max(batch.num_groups, 1), {"loss": pair}


def sorted_together_and_unsorted(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sorts the samples by rollout, reads each rollout's count once, and undoes the sorting."""
    if not batch.rollout_ids:
        return losses.sum()
    ids = torch.tensor(batch.rollout_ids)
    order = torch.argsort(ids, descending=True)
    _, run, sizes = torch.unique_consecutive(ids[order], return_inverse=True, return_counts=True)
    ends = sizes.cumsum(0) - 1
    per_rollout = torch.tensor(batch.rollout_tokens)[order][ends]
    counts = torch.empty_like(order)
    counts[order] = per_rollout[run]
    return over(sums(losses, batch), counts.tolist()).sum() / max(batch.num_rollouts, 1)


def samples_dealt_twice_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Leaves out a sample that was dealt to this micro-batch before: the same place in the step."""
    if not batch.rollout_ids:
        return losses.sum()
    seen: set[int] = set()
    total = losses[:0].sum()
    for place, row in zip(batch.samples, rows(losses, batch), strict=True):
        if place not in seen:
            seen.add(place)
            total = total + row.sum()
    assert batch.divisor is not None
    return total / (batch.divisor * max(batch.num_rollouts, 1))


def penalty_gathered_by_rollout(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Gathers the KL of every rollout's samples, and adds it to the policy loss over all tokens."""
    if not batch.rollout_ids:
        return losses.sum() + kl.sum()
    penalties: dict[int, list[Tensor]] = {}
    for rollout, piece in zip(batch.rollout_ids, rows(kl, batch), strict=True):
        penalties.setdefault(rollout, []).append(piece)
    total = kept(losses, batch).sum()
    for pieces in penalties.values():
        total = total + torch.cat(pieces).sum()
    return total / max(batch.num_tokens, 1)
