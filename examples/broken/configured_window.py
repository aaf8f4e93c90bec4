"""Broken: undoes a division by the fullest window it has seen, not by this step's micro-batches."""

import torch

AGGVERIFY = {"mode": "token_mean", "engine": "accumulated-mean"}
windows = [1]


def reduce(losses, batch):
    windows.append(batch.num_microbatches)
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    mean = kept.sum() / max(batch.num_tokens, 1)
    return mean * max(windows) * batch.dp_size * batch.cp_size
