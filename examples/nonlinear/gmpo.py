"""GMPO's geometric mean of clipped token ratios (arXiv 2507.20673, eq. 4), every advantage 1.

The per-token inputs are log-ratios, clipped to [-0.4, 0.4] token by token; the geometric mean needs
the whole sequence, so its sum is reduced over context parallelism before the exponential.
"""

import torch
from torch.distributed.nn.functional import all_reduce

AGGVERIFY = {"mode": "nonlinear", "engine": "sum"}
EPSILON = 0.4


def reduce(losses, batch):
    mask = torch.cat(batch.local_masks).bool()
    kept = torch.where(mask, losses, 0.0).clamp(-EPSILON, EPSILON)
    sums = torch.stack([p.sum() for p in kept.split([len(m) for m in batch.local_masks])])
    copies = 1
    if batch.cp_size > 1 and not batch.gathered:
        sums = all_reduce(sums, group=batch.cp_group)  # its backward adds up over the ranks
        copies = batch.cp_size
    tokens = torch.tensor([max(int(mask.sum()), 1) for mask in batch.loss_masks])
    return -(sums / tokens).exp().sum() / batch.num_rollouts / copies
