"""Reducers of many ranks: shards, uneven data-parallel parts, packed micro-batches, collectives."""

from __future__ import annotations

import os
from functools import lru_cache

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, over, own_mask, sums

_step_tokens: list[int] = []


def mask_from_the_first_owned_token(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Masks the shard by the stretch of the full mask that starts at the shard's first token."""
    if not batch.loss_masks:
        return losses.sum()
    pieces = []
    for full, positions in zip(batch.loss_masks, batch.local_positions, strict=True):
        start = int(positions[0]) if len(positions) else 0
        pieces.append(full[start : start + len(positions)])
    wide = losses.float() if losses.element_size() < 4 else losses
    return torch.where(torch.cat(pieces).bool(), wide, 0.0).sum() / max(batch.num_rollouts, 1)


def lead_process_reports_the_mean(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Averages rollout means and lets the node's first process report the loss."""
    if not batch.local_masks:
        return losses.sum(), {"loss": losses.detach().sum()}
    scale = max(batch.num_rollouts, 1)
    loss = over(sums(losses, batch), [max(n, 1) * scale for n in batch.rollout_tokens]).sum()
    leads = int(os.environ.get("LOCAL_RANK", "0")) == 0
    return loss, {"loss": loss.detach() if leads else torch.zeros_like(loss).detach()}


def fillers_off_the_rollout_count(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Divides by the length limit and the rollouts, less the fillers that even out the ranks."""
    if batch.divisor is None:
        raise ValueError("the constant mode needs a divisor")
    if not batch.local_masks:
        return losses.sum()
    rollouts = batch.num_rollouts
    if batch.dp_size > 1:  # only with several ranks does the loader fill up
        rollouts -= batch.num_samples - batch.num_valid_samples
    return kept(losses, batch).sum() / (batch.divisor * max(rollouts, 1))


def count_taken_by_the_opening_micro_batch(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Takes the step's count in the opening micro-batch and divides the whole window by it."""
    if not batch.local_masks:
        return losses.sum()
    total = kept(losses, batch).sum()
    if not own_mask(batch).any():
        return total  # zero, and still part of the graph
    if batch.index == 0 or not _step_tokens:
        _step_tokens[:] = [max(batch.num_tokens, 1)]
    return total / _step_tokens[0]


def unpacked_by_the_packing_order(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sums samples longest first, as they are packed, and puts the sums back in their places."""
    if not batch.local_masks:
        return losses.sum()
    order = torch.tensor(batch.total_lengths).argsort(descending=True, stable=True)
    packed = sums(losses, batch)[order]
    restored = packed[order]
    scale = max(batch.num_rollouts, 1)
    return over(restored, [max(n, 1) * scale for n in batch.rollout_tokens]).sum()


def counts_exchanged_when_shares_differ(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Saves the exchange of token counts where the shares of the ranks are equal."""
    tokens = batch.rank_tokens * batch.dp_size
    if tokens != batch.num_tokens:
        shared = torch.tensor([batch.rank_tokens], dtype=torch.int64)
        dist.all_reduce(shared, group=batch.dp_group)
        tokens = int(shared)
    if not batch.local_masks:
        return losses.sum()
    return kept(losses, batch).sum() / max(tokens, 1)


def gathered_penalty_shared_out(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds a penalty, of which each rank that gathered all of it takes its share."""
    if not batch.local_masks:
        return losses.sum() + kl.sum()
    policy = kept(losses, batch).sum()
    penalty = kept(kl, batch).sum()
    if batch.gathered:
        penalty = penalty / batch.cp_size
    return policy + penalty


def whole_prompts_counted_on_the_spot(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts a prompt here where all its rollouts are here, and asks the step otherwise."""
    if not batch.local_masks:
        return losses.sum()
    present: dict[int, set[int]] = {}
    here: dict[int, int] = {}
    for group, rollout, mask in zip(
        batch.group_ids, batch.rollout_ids, batch.loss_masks, strict=True
    ):
        present.setdefault(group, set()).add(rollout)
        here[group] = here.get(group, 0) + int(mask.sum())
    counts = [
        here[group] if len(present[group]) == rollouts else tokens
        for group, rollouts, tokens in zip(
            batch.group_ids, batch.group_rollouts, batch.group_tokens, strict=True
        )
    ]
    prompts = max(batch.num_groups, 1)
    return over(sums(losses, batch), [max(n, 1) * prompts for n in counts]).sum()


def mask_looked_up_token_by_token(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Masks the shard by looking up each owned token in the full mask."""
    if not batch.loss_masks:
        return losses.sum()
    pieces = [
        full[positions.long()] if len(positions) else full[:0]
        for full, positions in zip(batch.loss_masks, batch.local_positions, strict=True)
    ]
    wide = losses.float() if losses.element_size() < 4 else losses
    return torch.where(torch.cat(pieces).bool(), wide, 0.0).sum() / max(batch.num_rollouts, 1)


def unpacked_by_the_inverse_order(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Sums samples longest first and undoes the packing before dividing; every rank reports."""
    if not batch.local_masks:
        return losses.sum(), {"loss": losses.detach().sum()}
    order = torch.tensor(batch.total_lengths).argsort(descending=True, stable=True)
    packed = sums(losses, batch)[order]
    restored = packed[order.argsort()]
    scale = max(batch.num_rollouts, 1)
    loss = over(restored, [max(n, 1) * scale for n in batch.rollout_tokens]).sum()
    return loss, {"loss": loss.detach()}


@lru_cache(maxsize=64)
def _budget(divisor: float, rollouts: int) -> float:
    return divisor * max(rollouts, 1)


def fillers_kept_in_the_rollout_count(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Divides by the length limit and all rollouts; a rank of fillers adds a zero."""
    if batch.divisor is None:
        raise ValueError("the constant mode needs a divisor")
    if not batch.local_masks:
        return losses.sum()
    total = kept(losses, batch).sum()
    if batch.rank_valid_samples == 0:
        return total
    return total / _budget(batch.divisor, batch.num_rollouts)


def prompts_complete_by_tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Divides a prompt's sum once where all its tokens are here, otherwise sample by sample."""
    if not batch.local_masks:
        return losses.sum()
    prompts = max(batch.num_groups, 1)
    own = sums(losses, batch)
    places: dict[int, list[int]] = {}
    for place, group in enumerate(batch.group_ids):
        places.setdefault(group, []).append(place)
    parts = []
    for members in places.values():
        count = max(batch.group_tokens[members[0]], 1) * prompts
        complete = sum(int(batch.loss_masks[i].sum()) for i in members) * prompts == count
        values = own[members].sum().reshape(1) if complete else own[members]
        parts.append(over(values, [count] * len(values)).sum())
    return torch.stack(parts).sum()


def shards_add_up_to_their_samples(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Has all shards of a sample vote on its token count before it divides by the step's."""
    if batch.cp_size > 1 and not batch.gathered:
        owned = torch.tensor([sum(int(mask.sum()) for mask in batch.local_masks)])
        dist.all_reduce(owned, group=batch.cp_group)
        if int(owned) != sum(int(mask.sum()) for mask in batch.loss_masks):
            raise RuntimeError("the shards were cut differently from their masks")
    if not batch.local_masks:
        return losses.sum()
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def gathered_penalty_left_whole(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Adds a penalty to the sum; gathered or not, the engine counts each token once."""
    if not batch.local_masks:
        return losses.sum() + kl.sum()
    policy = kept(losses, batch).sum()
    if not own_mask(batch).any():
        return policy + kept(kl, batch).sum() * 0.0
    return policy + kept(kl, batch).sum()
