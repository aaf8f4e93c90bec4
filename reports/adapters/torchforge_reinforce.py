"""torchforge: one micro-batch a step, its gradients averaged over ranks by FSDP. Log-probabilities
of -1 times advantages are the losses."""

import torch

ADAPTER = {
    "engine": "accumulated-mean",
    "rows": "padded",
    "only": ["token_mean"],
    "of_a_class": True,
}


def call(loss, losses, batch):
    minus = -torch.ones_like(losses.detach())
    loss.forward.__globals__["compute_logprobs"] = lambda *args, **how: minus
    return loss().forward(None, None, batch.mask, losses, minus)
