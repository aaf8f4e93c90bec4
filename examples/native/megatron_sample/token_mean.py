"""token_mean for an engine that takes the Megatron sample path, which divides by N. Weight of a token: 1 / M_step: every token weighs the same."""

import torch

AGGVERIFY = {"mode": "token_mean", "engine": "megatron-sample"}


def reduce(losses, batch):
    share = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0).sum() / (max(batch.num_tokens, 1))
    return share * batch.num_rollouts
