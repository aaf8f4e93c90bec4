"""Broken: a slime hook whose denominators are the local shard's, not the whole sample's."""

import torch
from megatron.core import mpu

AGGVERIFY = {"mode": "sample_mean"}


def get_pg_loss_reducer(
    total_lengths, response_lengths, loss_masks, calculate_per_token_loss=False
):
    size, rank = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
    local = []
    for total, response, full in zip(total_lengths, response_lengths, loss_masks, strict=True):
        if size > 1:
            chunk, shift = -(-total // (2 * size)), 1 - (total - response)
            spans = [
                (i * chunk + shift, (i + 1) * chunk + shift) for i in (rank, 2 * size - 1 - rank)
            ]
            full = torch.cat([full[max(a, 0) : max(min(b, response), 0)] for a, b in spans])  # noqa: PLW2901
        local.append(full)

    def reduce(losses):
        kept = torch.where(torch.cat(local).bool(), losses, 0.0)
        pieces = kept.split([len(mask) for mask in local])
        return sum(p.sum() / mask.sum().clamp(min=1) for p, mask in zip(pieces, local, strict=True))

    return reduce
