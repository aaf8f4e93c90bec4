"""LLaMA-Factory's ASFT loss of two-token logits; nothing divides by K, DDP averages over ranks."""

import torch

ADAPTER = {"engine": "mean", "rows": "padded"}


def call(asft_cross_entropy, losses, batch):
    logits = torch.stack([losses, torch.zeros_like(losses)], -1).flatten(0, 1)
    labels = torch.where(batch.mask.bool(), 0, -100).flatten()
    return asft_cross_entropy(logits, labels, logits.detach())
