"""token_sum for an engine that divides by N (Megatron's sample path).

Weight of a token: 1, normalisation lives in the advantages (Tinker).
"""

import torch

AGGVERIFY = {"mode": "token_sum", "engine": "megatron-sample"}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum() * batch.num_rollouts
