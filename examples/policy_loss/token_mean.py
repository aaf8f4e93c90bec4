"""PPO's clipped objective with the step's token mean: the log-ratio is taken where tokens count, so
that nothing behind the mask is exponentiated."""

import torch

AGGVERIFY = {"mode": "token_mean", "engine": "sum"}
LOW, HIGH = 0.8, 1.28


def loss(log_probs, advantages, batch):
    mask = torch.cat(batch.local_masks).bool()
    log_ratio = torch.where(mask, log_probs - batch.old_log_probs, 0.0)
    ratio = log_ratio.exp()
    losses = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(LOW, HIGH))
    return torch.where(mask, losses, 0.0).sum() / max(batch.num_tokens, 1)
