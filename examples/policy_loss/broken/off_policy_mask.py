"""Sequences that have drifted from the rollout policy are masked, and each context-parallel rank
asks its own slice how far: one part of a sequence trains, another does not."""

import torch

AGGVERIFY = {"mode": "nonlinear", "engine": "sum"}
FURTHEST = 0.05


def loss(log_probs, advantages, batch):
    mask = torch.cat(batch.local_masks).bool()
    log_ratio = torch.where(mask, log_probs - batch.old_log_probs, 0.0)
    lengths = [len(own) for own in batch.local_masks]
    drift = torch.stack([own.sum() for own in log_ratio.detach().split(lengths)])
    tokens = torch.tensor([max(int(own.sum()), 1) for own in batch.local_masks])
    kept = (drift / tokens <= FURTHEST).repeat_interleave(torch.tensor(lengths))
    losses = torch.where(mask & kept, -advantages * log_ratio.exp(), 0.0)
    return losses.sum() / max(batch.num_tokens, 1)
