"""AReaL's ``ppo_actor_loss_fn``: a local token mean, which the engine weighs.

Ratios are 1, and advantages stand for minus losses.
"""

from typing import Any

import torch

ADAPTER = {
    "title": "AReaL",
    "function": "ppo_actor_loss_fn",
    "parameters": [
        "logprobs",
        "proximal_logprobs",
        "old_logprobs",
        "advantages",
        "eps_clip",
        "loss_mask",
    ],
    "run_against": [["areal", "1.0.4", "2026-11-26"]],
    "engine": "areal",
    "only": ["token_mean"],
    "not_claimed": {
        "context-parallel": "log-probabilities are gathered before the loss",
        "contiguous": "log-probabilities are gathered before the loss",
        "gathered": "each rank's backward takes its own slice, which the loss does not see",
        "rejection": "the mask is taken as final",
    },
    "notes": ["clipping, importance ratios, KL and rejection sampling are not exercised"],
}


def call(ppo_actor_loss_fn: Any, losses: Any, batch: Any) -> Any:
    zeros = torch.zeros_like(losses.detach())
    loss, _ = ppo_actor_loss_fn(
        logprobs=zeros,
        proximal_logprobs=zeros,
        old_logprobs=zeros,
        advantages=-losses,
        eps_clip=0.2,
        loss_mask=batch.mask.bool(),
    )
    return loss
