"""torchforge: one micro-batch a step, its gradients averaged over ranks by FSDP."""

import torch

ADAPTER = {
    "engine": "accumulated-mean",
    "rows": "padded",
    "only": ["sample_mean"],
    "of_a_class": True,
}


def call(loss, losses, batch):
    zeros = torch.zeros_like(losses.detach())
    return loss(beta=0.0).forward(zeros, zeros, -losses, batch.mask)
