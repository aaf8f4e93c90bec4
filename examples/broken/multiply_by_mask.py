"""Broken: the mask is multiplied in, and 0 * NaN is NaN."""

import torch

AGGVERIFY = {"mode": "token_mean"}


def reduce(losses, batch):
    return (losses * torch.cat(batch.local_masks)).sum() / max(batch.num_tokens, 1)
