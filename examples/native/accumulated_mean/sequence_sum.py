"""sequence_sum for an engine that takes the mean over micro-batches and ranks. Weight of a token: 1 / N: sequence sums, averaged over rollouts."""

import torch

AGGVERIFY = {"mode": "sequence_sum", "engine": "accumulated-mean"}


def reduce(losses, batch):
    share = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0).sum() / batch.num_rollouts
    return share * batch.num_microbatches * batch.dp_size * batch.cp_size
