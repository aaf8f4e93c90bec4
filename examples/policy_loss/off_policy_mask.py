"""Sequences that have drifted from the rollout policy are masked: how far is a mean over the whole
sequence, so that its sum is reduced over context parallelism before it is compared."""

import torch
import torch.distributed as dist

AGGVERIFY = {"mode": "nonlinear", "engine": "sum"}
FURTHEST = 0.05


def loss(log_probs, advantages, batch):
    mask = torch.cat(batch.local_masks).bool()
    log_ratio = torch.where(mask, log_probs - batch.old_log_probs, 0.0)
    lengths = [len(own) for own in batch.local_masks]
    drift = torch.stack([own.sum() for own in log_ratio.detach().split(lengths)])
    if batch.cp_size > 1 and not batch.gathered:
        dist.all_reduce(drift, group=batch.cp_group)
    tokens = torch.tensor([max(int(whole.sum()), 1) for whole in batch.loss_masks])
    kept = (drift / tokens <= FURTHEST).repeat_interleave(torch.tensor(lengths))
    losses = torch.where(mask & kept, -advantages * log_ratio.exp(), 0.0)
    return losses.sum() / max(batch.num_tokens, 1)
