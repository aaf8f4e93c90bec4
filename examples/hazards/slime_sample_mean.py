"""A hazard: sample_mean as slime itself writes it, one sum of ``x * mask`` per sample.

Right for finite values, which slime's trainer guarantees: exit 0, and 1 with ``--claim poison``.
"""

import torch
from megatron.core import mpu

AGGVERIFY = {"mode": "sample_mean"}


def get_pg_loss_reducer(
    total_lengths, response_lengths, loss_masks, calculate_per_token_loss=False
):
    size, rank = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
    local = [
        zigzag(mask, total, response, size, rank)
        for mask, total, response in zip(loss_masks, total_lengths, response_lengths, strict=True)
    ]

    def reduce(losses):
        pieces = losses.split([len(mask) for mask in local])
        return sum(
            (x * mask).sum() / torch.clamp_min(whole.sum(), 1)
            for x, mask, whole in zip(pieces, local, loss_masks, strict=True)
        )

    return reduce


def zigzag(mask, total, response, size, rank):
    """This rank's two chunks of a response's mask; the logit before a token owns it."""
    if size == 1:
        return mask
    chunk, shift = -(-total // (2 * size)), 1 - (total - response)
    chunks = (
        range(i * chunk + shift, (i + 1) * chunk + shift) for i in (rank, 2 * size - 1 - rank)
    )
    return torch.cat([mask[max(c.start, 0) : max(min(c.stop, response), 0)] for c in chunks])
