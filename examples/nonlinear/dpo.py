"""DPO (arXiv 2305.18290, eq. 7). A pair is a prompt group of two; the smaller rollout id is chosen.

A sequence's log-ratio is reduced over context parallelism before the sigmoid.
"""

import torch
from torch.distributed.nn.functional import all_reduce

AGGVERIFY = {"mode": "dpo(0.1)", "engine": "sum", "group_size": 2}


def loss(log_probs, advantages, batch):
    kept = torch.where(batch.mask.bool(), log_probs - batch.ref_log_probs, 0.0)
    sums = torch.stack([row.sum() for row in kept.split([len(m) for m in batch.local_masks])])
    copies = 1
    if batch.cp_size > 1 and not batch.gathered:
        sums = all_reduce(sums, group=batch.cp_group)  # its backward adds up over the ranks
        copies = batch.cp_size
    pairs = {}
    for n in sorted(range(len(sums)), key=batch.rollout_ids.__getitem__):
        pairs.setdefault(batch.group_ids[n], []).append(n)
    chosen, rejected = torch.tensor(list(pairs.values())).unbind(1)
    total = -torch.nn.functional.logsigmoid(0.1 * (sums[chosen] - sums[rejected])).sum()
    return total / batch.num_groups / copies
