"""length_weighted with power 1/2, for an engine that sums over ranks and micro-batches.

Weight of a token: sqrt(M_r) / (N * M_r), between sample_mean (power 0) and LUSPO's power 1.
"""

import torch

AGGVERIFY = {"mode": "length_weighted(1/2)", "engine": "sum"}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    pieces = kept.split([len(mask) for mask in batch.local_masks])
    tokens = [max(n, 1) for n in batch.rollout_tokens]
    weighed = (p.sum() * n**0.5 / n for p, n in zip(pieces, tokens, strict=True))
    return sum(weighed) / batch.num_rollouts
