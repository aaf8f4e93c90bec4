"""constant for an engine that takes the Megatron sample path, which divides by N. Weight of a token: 1 / (L * N): a fixed divisor instead of a count (Dr.GRPO)."""

import torch

AGGVERIFY = {"mode": "constant", "engine": "megatron-sample", "divisor": 16.0}


def reduce(losses, batch):
    share = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0).sum() / (batch.divisor * batch.num_rollouts)
    return share * batch.num_rollouts
