"""Broken: each context-parallel shard takes the geometric mean of its own tokens (GMPO, GSPO)."""

import torch

AGGVERIFY = {"mode": "nonlinear", "engine": "sum"}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    sums = torch.stack([p.sum() for p in kept.split([len(m) for m in batch.local_masks])])
    tokens = torch.tensor([max(int(mask.sum()), 1) for mask in batch.local_masks])
    shards = 1 if batch.gathered else batch.cp_size
    return -(sums / tokens).exp().sum() / batch.num_rollouts / shards
