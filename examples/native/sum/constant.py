"""constant for an engine that sums over ranks and micro-batches.

Weight of a token: 1 / (L * N), a fixed divisor instead of a count (Dr.GRPO).
"""

import torch

AGGVERIFY = {"mode": "constant", "engine": "sum", "divisor": 16.0}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum() / (batch.divisor * batch.num_rollouts)
