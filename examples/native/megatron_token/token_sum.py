"""token_sum for an engine that takes the Megatron per-token path, which divides by the step's tokens. Weight of a token: 1: normalisation lives in the advantages (Tinker)."""

import torch

AGGVERIFY = {"mode": "token_sum", "engine": "megatron-token"}


def reduce(losses, batch):
    share = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0).sum()
    return share * batch.num_tokens
