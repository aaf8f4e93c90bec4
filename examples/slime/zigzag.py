"""Local pieces of full masks under zigzag context parallelism: what every hook here needs."""

import torch
from megatron.core import mpu


def local_masks(total_lengths, response_lengths, loss_masks):
    """The part of each mask that this CP rank's losses stand for, in the order of the losses."""
    size, rank = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
    if size == 1:
        return list(loss_masks)
    local = []
    for total, response, mask in zip(total_lengths, response_lengths, loss_masks, strict=True):
        chunk = -(-total // (2 * size))
        shift = 1 - (total - response)  # the logit before a token owns it
        parts = []
        for index in (rank, 2 * size - 1 - rank):
            first, last = index * chunk + shift, (index + 1) * chunk + shift
            parts.append(mask[max(first, 0) : max(min(last, response), 0)])
        local.append(torch.cat(parts))
    return local


def masked_sums(losses, masks):
    """One sum per sample; values behind the mask are never touched by arithmetic."""
    kept = torch.where(torch.cat(masks).bool(), losses, 0.0)
    return [piece.sum() for piece in kept.split([len(mask) for mask in masks])]
