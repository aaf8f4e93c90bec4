"""sample_mean for an engine that takes the mean over micro-batches and ranks. Weight of a token: 1 / (N * M_r): every rollout weighs the same."""

import torch

AGGVERIFY = {"mode": "sample_mean", "engine": "accumulated-mean"}


def reduce(losses, batch):
    masked = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    pieces = masked.split([len(mask) for mask in batch.local_masks])
    share = sum(
        piece.sum() / (batch.num_rollouts * max(tokens, 1))
        for piece, tokens in zip(pieces, batch.rollout_tokens, strict=True)
    )
    return share * batch.num_microbatches * batch.dp_size * batch.cp_size
