"""prompt_mean for an engine that divides by the step's tokens (Megatron's per-token path).

Weight of a token: 1 / (P * M_g), so every prompt counts the same.
"""

import torch

AGGVERIFY = {"mode": "prompt_mean", "engine": "megatron-token"}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    pieces = kept.split([len(mask) for mask in batch.local_masks])
    means = (p.sum() / max(n, 1) for p, n in zip(pieces, batch.group_tokens, strict=True))
    return sum(means) / batch.num_groups * batch.num_tokens
