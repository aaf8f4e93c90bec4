"""sequence_sum for an engine that averages over all ranks (DDP, FSDP).

Weight of a token: 1 / N, the mean over rollouts of their sums.
"""

import torch

AGGVERIFY = {"mode": "sequence_sum", "engine": "mean"}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum() / batch.num_rollouts * (batch.dp_size * batch.cp_size)
