"""token_mean for an engine that averages over all ranks (DDP, FSDP).

Weight of a token: 1 / M_step, so every token counts the same.
"""

import torch

AGGVERIFY = {"mode": "token_mean", "engine": "mean"}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum() / max(batch.num_tokens, 1) * (batch.dp_size * batch.cp_size)
