"""GSPO's sequence ratio (arXiv 2507.18071, eq. 7), unclipped, every advantage 1.

The per-token inputs are log-ratios. A sequence's ratio is exp of its mean log-ratio, so the mean is
reduced over context parallelism before the exponential.
"""

import torch
from torch.distributed.nn.functional import all_reduce

AGGVERIFY = {"mode": "nonlinear", "engine": "sum"}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    sums = torch.stack([p.sum() for p in kept.split([len(m) for m in batch.local_masks])])
    copies = 1
    if batch.cp_size > 1 and not batch.gathered:
        sums = all_reduce(sums, group=batch.cp_group)  # its backward adds up over the ranks
        copies = batch.cp_size
    tokens = torch.tensor([max(int(mask.sum()), 1) for mask in batch.loss_masks])
    return -(sums / tokens).exp().sum() / batch.num_rollouts / copies
