"""verl's critic loss: micro-batches' values are added up, and averaged over ranks.

It is half a square, so only gradients are compared: at a distance of 1 they are the weights."""

import inspect

import torch

ADAPTER = {
    "engine": "mean",
    "rows": "padded",
    "modes": {"token_mean": "token-mean", "sequence_sum": "seq-mean-token-sum"},
}


def call(compute_value_loss, losses, batch):
    ones, moved = torch.ones_like(losses.detach()), losses - losses.detach()
    step = {"dp_size": batch.dp_size, "batch_num_tokens": batch.num_tokens}
    step["global_batch_size"] = batch.num_rollouts  # none of these before 0.9.0
    known = step.keys() & inspect.signature(compute_value_loss).parameters
    given = {"loss_agg_mode": batch.mode, **{name: step[name] for name in known}}
    loss = compute_value_loss(moved, -ones, 0 * ones, batch.mask, 0.5, **given)[0]
    return loss - loss.detach()
