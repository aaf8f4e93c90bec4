"""Broken: divides by the width of the padded batch where a constant was meant (verl core_algos)."""

import torch

AGGVERIFY = {"mode": "constant", "divisor": 16, "engine": "sum"}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum() / (max(batch.response_lengths) * batch.num_rollouts)
