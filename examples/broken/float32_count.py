"""Broken: counts tokens in float32 beside float64 losses, so 2^24 + 1 of them are one too few."""

import torch

AGGVERIFY = {"mode": "token_mean", "engine": "sum"}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    mine = torch.cat(batch.loss_masks).float().sum()
    others = batch.num_tokens - int(torch.cat(batch.loss_masks).sum())
    return kept.sum() / (mine + others).clamp(min=1).double()
