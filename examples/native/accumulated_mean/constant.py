"""constant for an engine that averages over micro-batches and ranks.

Weight of a token: 1 / (L * N), a fixed divisor instead of a count (Dr.GRPO).
"""

import torch

AGGVERIFY = {"mode": "constant", "engine": "accumulated-mean", "divisor": 16.0}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return (
        kept.sum()
        / (batch.divisor * batch.num_rollouts)
        * (batch.num_microbatches * batch.dp_size * batch.cp_size)
    )
