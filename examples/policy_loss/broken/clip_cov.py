"""Clip-Cov over the micro-batch at hand: tokens whose advantage and log-probability vary together
most have no gradient, and which these are depends on the others beside them."""

import torch

AGGVERIFY = {"mode": "nonlinear", "engine": "sum"}


def loss(log_probs, advantages, batch):
    mask = torch.cat(batch.local_masks).bool()
    ratio = torch.where(mask, log_probs - batch.old_log_probs, 0.0).exp()
    own, known = advantages[mask], log_probs.detach()[mask]
    covariance = (own - own.mean()) * (known - known.mean())
    kept = mask.nonzero().flatten()[covariance.argsort()[: 1 + 4 * len(own) // 5]]
    return (-advantages * ratio)[kept].sum() / max(batch.num_tokens, 1)
