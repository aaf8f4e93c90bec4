"""Broken: counts what rejection left; the fewer tokens are kept, the more each of them weighs."""

import torch

AGGVERIFY = {"mode": "token_mean", "engine": "megatron-token", "claim": "rejection"}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum(), sum(int(mask.sum()) for mask in batch.loss_masks)
