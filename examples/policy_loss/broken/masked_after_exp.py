"""Masked after the exponential: the loss is right, its gradient is 0 * NaN where NaN stands behind
the mask. A trainer that cannot promise that none does claims ``poison``."""

import torch

AGGVERIFY = {"mode": "token_mean", "engine": "sum", "claim": ["poison"]}


def loss(log_probs, advantages, batch):
    mask = torch.cat(batch.local_masks).bool()
    ratio = (log_probs - batch.old_log_probs).exp()
    return torch.where(mask, -advantages * ratio, 0.0).sum() / max(batch.num_tokens, 1)
