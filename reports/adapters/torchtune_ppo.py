"""torchtune's PPO loss: its recipe, of one device, divides by the gradient accumulation steps."""

import torch

ADAPTER = {"engine": "accumulated-mean", "rows": "padded"}


def call(kind, losses, batch):
    mask, zeros = batch.mask.bool(), torch.zeros_like(losses.detach())
    advantages = -losses.masked_fill(~mask, 0.0)
    return kind()(zeros, zeros, advantages, zeros, zeros, zeros, padding_masks=mask)[0]
