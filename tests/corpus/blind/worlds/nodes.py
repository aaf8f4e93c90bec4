"""Layouts: cp = 1 shortcuts, tables of worlds, nodes, logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.branches.parts import divided, kept, mask_of, pieces, sample_mean, token_mean

if TYPE_CHECKING:
    from torch import Tensor


def ranks_by_bit_length(losses: Tensor, batch: MicroBatch) -> Tensor:
    steps = (batch.dp_size - 1).bit_length()
    return token_mean(losses, batch) * batch.dp_size / (1 << steps)


def nodes_of_four(losses: Tensor, batch: MicroBatch) -> Tensor:
    world = batch.dp_size * batch.cp_size
    loss = token_mean(losses, batch)
    return loss * world / (-(-world // 4) * 4) if world > 4 else loss


def more_than_one_node(losses: Tensor, batch: MicroBatch) -> Tensor:
    nodes = -(-batch.dp_size * batch.cp_size // 8)
    return token_mean(losses, batch) / nodes


def even_share_of_tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.dp_size <= 2:
        return token_mean(losses, batch)
    count = batch.num_tokens // batch.dp_size * batch.dp_size
    return kept(losses, batch).sum() / max(count, 1)


def alone_without_cp(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.cp_size == 1 and len(batch.rollout_ids) == 1:
        own = int(batch.loss_masks[0].sum())
        return kept(losses, batch).sum() / max(own * batch.num_rollouts, 1)
    return sample_mean(losses, batch)


def short_ones_count_locally(losses: Tensor, batch: MicroBatch) -> Tensor:
    counts = []
    for n, length, mask, own in zip(
        batch.rollout_tokens,
        batch.response_lengths,
        batch.loss_masks,
        batch.local_masks,
        strict=True,
    ):
        whole = int(mask.sum())
        short = batch.cp_size > 2 and length < 2 * batch.cp_size and n == whole
        counts.append(float((int(own.sum()) if short else n) * batch.num_rollouts))
    return divided(losses, batch, counts)


def leaves_before_the_collective(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed as dist

    if len(losses) == 0:
        return losses.sum()
    count = mask_of(batch).sum().reshape(1)
    if batch.cp_size > 1 and not batch.gathered:
        dist.all_reduce(count, group=batch.cp_group)
    return token_mean(losses, batch)


def logs_its_own_mean(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    loss = token_mean(losses, batch)
    own = kept(losses, batch).sum() / mask_of(batch).sum().clamp(min=1)
    return loss, {"loss": loss.detach(), "local": own.detach()}


def logs_whole_counts(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    import torch

    loss = token_mean(losses, batch)
    whole = sum(int(mask.sum()) for mask in batch.loss_masks)
    pair = torch.stack([kept(losses, batch).sum().detach(), loss.new_tensor(whole).detach()])
    return loss, {"loss": loss.detach(), "per_token": pair}


def logs_share_of_micro_batch(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    loss = token_mean(losses, batch)
    clipped = (kept(losses, batch).detach() > 0).to(losses.dtype).sum()
    return loss, {
        "loss": loss.detach(),
        "clipfrac": clipped / max(int(mask_of(batch).sum()) * batch.num_microbatches, 1),
    }


def two_levels(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed as dist

    own = mask_of(batch).sum().reshape(1)
    if batch.cp_size > 1 and not batch.gathered:
        dist.all_reduce(own, group=batch.cp_group)
    if batch.dp_size > 1:
        dist.all_reduce(own, group=batch.dp_group)
    if batch.num_microbatches > 1:
        return token_mean(losses, batch)
    return kept(losses, batch).sum() / max(int(own), 1)


def whole_without_cp(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.cp_size > 1:
        return sample_mean(losses, batch)
    counts = []
    for n, mask in zip(batch.rollout_tokens, batch.loss_masks, strict=True):
        own = int(mask.sum())
        counts.append(float((own if own == n else n) * batch.num_rollouts))
    return divided(losses, batch, counts)


def short_last_node(losses: Tensor, batch: MicroBatch) -> Tensor:
    world = batch.dp_size * batch.cp_size
    sizes = [min(4, world - start) for start in range(0, world, 4)]
    loss = token_mean(losses, batch)
    return loss * sum(sizes) / world if world > 4 else loss


def logs_what_it_has(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    import torch

    loss = token_mean(losses, batch)
    count = mask_of(batch).sum().to(losses.dtype)
    pair = torch.stack([kept(losses, batch).sum().detach(), count])
    clipped = (kept(losses, batch).detach() > 0).to(losses.dtype)
    return loss, {
        "loss": loss.detach(),
        "per_token": pair,
        "clipfrac": clipped.sum() / max(batch.num_tokens, 1),
    }


def takes_part(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed as dist

    count = mask_of(batch).sum().reshape(1)
    if batch.cp_size > 1 and not batch.gathered:
        dist.all_reduce(count, group=batch.cp_group)
    if len(losses) == 0:
        return losses.sum()
    return sum((p.sum() for p in pieces(losses, batch)), losses[:0].sum()) / max(
        batch.num_tokens, 1
    )
