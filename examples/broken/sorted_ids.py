"""Broken: denominators sorted by rollout id, samples as they come; wrong when they differ."""

import torch

AGGVERIFY = {"mode": "sample_mean", "engine": "sum"}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    pieces = kept.split([len(mask) for mask in batch.local_masks])
    tokens = dict(zip(batch.rollout_ids, batch.rollout_tokens, strict=True))
    counts = [tokens[rollout] for rollout in sorted(batch.rollout_ids)]
    means = (p.sum() / max(n, 1) for p, n in zip(pieces, counts, strict=True))
    return sum(means) / batch.num_rollouts
