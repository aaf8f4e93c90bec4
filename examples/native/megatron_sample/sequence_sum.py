"""sequence_sum for an engine that divides by N (Megatron's sample path).

Weight of a token: 1 / N, the mean over rollouts of their sums.
"""

import torch

AGGVERIFY = {"mode": "sequence_sum", "engine": "megatron-sample"}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum() / batch.num_rollouts * batch.num_rollouts
