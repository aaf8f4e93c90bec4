"""verl's critic loss: micro-batches' values are added up, and averaged over ranks.

Half a difference of squares, of values one apart around the losses, is linear in the losses."""

import inspect

ADAPTER = {
    "engine": "mean",
    "rows": "padded",
    "modes": {"token_mean": "token-mean", "sequence_sum": "seq-mean-token-sum"},
}


def call(compute_value_loss, losses, batch):
    step = {"dp_size": batch.dp_size, "batch_num_tokens": batch.num_tokens}
    step["global_batch_size"] = batch.num_rollouts  # none of these before 0.9.0
    known = step.keys() & inspect.signature(compute_value_loss).parameters
    given = {"loss_agg_mode": batch.mode, **{name: step[name] for name in known}}
    above, below = losses.double() + 0.5, losses.double() - 0.5
    zero, mask = 0 * above.detach(), batch.mask
    high = compute_value_loss(above, zero, above.detach(), mask, 0.5, **given)[0]
    return high - compute_value_loss(below, zero, below.detach(), mask, 0.5, **given)[0]
