"""Broken: undoes a division by the configured number of micro-batches, not by this step's."""

import torch

AGGVERIFY = {"mode": "token_mean", "engine": "accumulated-mean"}
ACCUMULATION_STEPS = 2


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    mean = kept.sum() / max(batch.num_tokens, 1)
    return mean * ACCUMULATION_STEPS * batch.dp_size * batch.cp_size
