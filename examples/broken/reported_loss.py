"""The gradient is the token mean's; the reported loss was captured before the last rescale."""

import torch


def reduce(losses, batch):
    kept = losses[torch.cat(batch.local_masks).bool()].sum()
    before = kept / max(batch.num_tokens, 1) * batch.num_rollouts
    loss = before / batch.num_rollouts
    return loss + (before - loss).detach()
