"""prompt_mean for an engine that takes the mean over micro-batches and ranks. Weight of a token: 1 / (P * M_g): every prompt weighs the same."""

import torch

AGGVERIFY = {"mode": "prompt_mean", "engine": "accumulated-mean"}


def reduce(losses, batch):
    masked = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    pieces = masked.split([len(mask) for mask in batch.local_masks])
    share = sum(
        piece.sum() / (batch.num_groups * max(tokens, 1))
        for piece, tokens in zip(pieces, batch.group_tokens, strict=True)
    )
    return share * batch.num_microbatches * batch.dp_size * batch.cp_size
