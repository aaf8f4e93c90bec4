"""How the losses of ``sequence_losses.py`` are called: the weights are their log-probabilities'."""

ADAPTER = {
    "engine": "sum",
    "rows": "whole",
    "gradient_of": "log_probs",
    "not_claimed": {"context-parallel": "rows are whole", "fan-out": "a row is a rollout"},
}


def call(loss, log_probs, batch):  # type: ignore[no-untyped-def]
    loss = loss() if isinstance(loss, type) else loss
    known = batch.old_log_probs, batch.advantages, batch.mask.bool()
    return loss(log_probs, *known, batch.num_rollouts)
