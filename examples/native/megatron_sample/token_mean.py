"""token_mean for an engine that divides by N (Megatron's sample path).

Weight of a token: 1 / M_step, so every token counts the same.
"""

import torch

AGGVERIFY = {"mode": "token_mean", "engine": "megatron-sample"}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum() / max(batch.num_tokens, 1) * batch.num_rollouts
