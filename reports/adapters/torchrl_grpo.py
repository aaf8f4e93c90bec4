"""torchrl's GRPO loss: its recipes, of one device, divide by the gradient accumulation steps."""

from types import SimpleNamespace

ADAPTER = {
    "engine": "accumulated-mean",
    "rows": "padded",
    "modes": {"token_mean": "token_mean", "sample_mean": "prompt_mean"},
    "gradient_of": "log_probs",
}


def call(kind, log_probs, batch):
    from tensordict import TensorDict

    policy = SimpleNamespace(mask=batch.mask.bool(), log_prob=lambda tokens: log_probs)
    data = TensorDict({key: {"full": batch.old_log_probs} for key in ("log_probs", "tokens")})
    data["advantage"] = batch.advantages[:, None, None].expand(*log_probs.shape, 1)
    loss = kind(aggregation=batch.mode, entropy_bonus=False)
    loss.actor_network = SimpleNamespace(get_dist=None, _get_sft_dist=lambda data: policy)
    return loss(data).loss_objective
