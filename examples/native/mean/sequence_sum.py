"""sequence_sum for an engine that takes the DDP / FSDP mean over all ranks. Weight of a token: 1 / N: sequence sums, averaged over rollouts."""

import torch

AGGVERIFY = {"mode": "sequence_sum", "engine": "mean"}


def reduce(losses, batch):
    share = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0).sum() / batch.num_rollouts
    return share * batch.dp_size * batch.cp_size
