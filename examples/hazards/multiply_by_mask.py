"""A hazard: the mask is multiplied in, and 0 * NaN is NaN. Right wherever the trainer guarantees
finite values behind the mask: exit 0, and 1 with ``--claim poison`` or ``--strict``."""

import torch

AGGVERIFY = {"mode": "token_mean"}


def reduce(losses, batch):
    return (losses * torch.cat(batch.local_masks)).sum() / max(batch.num_tokens, 1)
