"""Broken: Dr.GRPO with the divisor of somebody else's context length written into the code."""

import torch

AGGVERIFY = {"mode": "constant", "divisor": 16.0}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum() / (1000.0 * batch.num_rollouts)
