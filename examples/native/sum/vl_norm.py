"""vl_norm with alpha = 1, for an engine that sums over ranks and micro-batches.

Weight of a token: (1/M_r) / (L * sum_r 1/M_r), arXiv 2509.07558; an empty rollout counts as one
token.
"""

import torch

AGGVERIFY = {"mode": "vl_norm", "engine": "sum", "divisor": 16.0}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    pieces = kept.split([len(mask) for mask in batch.local_masks])
    shares = (p.sum() / max(n, 1) for p, n in zip(pieces, batch.rollout_tokens, strict=True))
    norm = sum(1 / max(n, 1) for n in batch.step_rollout_tokens)
    return sum(shares) / (batch.divisor * norm)
