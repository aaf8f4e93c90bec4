"""sample_mean for an engine that averages over micro-batches and ranks.

Weight of a token: 1 / (N * M_r), so every rollout counts the same.
"""

import torch

AGGVERIFY = {"mode": "sample_mean", "engine": "accumulated-mean"}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    pieces = kept.split([len(mask) for mask in batch.local_masks])
    means = (p.sum() / max(n, 1) for p, n in zip(pieces, batch.rollout_tokens, strict=True))
    return (
        sum(means) / batch.num_rollouts * (batch.num_microbatches * batch.dp_size * batch.cp_size)
    )
