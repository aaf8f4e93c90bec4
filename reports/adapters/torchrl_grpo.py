"""torchrl's GRPO loss: its recipes, of one device, divide by the gradient accumulation steps."""

from types import SimpleNamespace

import torch

ADAPTER = {
    "engine": "accumulated-mean",
    "rows": "padded",
    "modes": {"token_mean": "token_mean", "sample_mean": "prompt_mean"},
}


def call(kind, losses, batch):
    from tensordict import TensorDict

    zeros, mask = torch.zeros_like(losses.detach()), batch.mask.bool()
    policy = SimpleNamespace(mask=mask, log_prob=lambda tokens: zeros)
    full = {key: {"full": zeros} for key in ("log_probs", "tokens")}
    data = TensorDict({"advantage": -losses.unsqueeze(-1), **full})
    loss = kind(aggregation=batch.mode, entropy_bonus=False)
    loss.actor_network = SimpleNamespace(get_dist=None, _get_sft_dist=lambda data: policy)
    return loss(data).loss_objective
