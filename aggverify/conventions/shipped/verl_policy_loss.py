"""The policy losses of verl by their common signature.

The counts of the step are in ``config.global_batch_info``; ratios are 1, and advantages stand for
minus losses.
"""

from typing import Any

import torch

from aggverify.conventions.stand_ins import StandIn, StandInDict

ADAPTER = {
    "title": "verl, a policy loss",
    "function": "compute_policy_loss_vanilla",
    "parameters": [
        "old_log_prob",
        "log_prob",
        "advantages",
        "response_mask",
        "loss_agg_mode",
        "config",
    ],
    "run_against": [["verl", "0.9.1", "2026-11-26"]],
    "engine": ["mean", "verl-megatron"],
    "rows": "padded",
    "width": "step",
    "modes": {
        "token_mean": "token-mean",
        "sample_mean": "seq-mean-token-mean",
        "constant": "seq-mean-token-sum-norm",
        "sequence_sum": "seq-mean-token-sum",
        "token_sum": "token-sum",
    },
    "never": {"prompt_mean": "verl passes no prompt groups to its policy losses"},
    "not_claimed": {
        "context-parallel": "log-probabilities are gathered over sequence parallelism first",
        "contiguous": "log-probabilities are gathered over sequence parallelism first",
        "gathered": "each rank's backward takes its own slice, which no parameter of it sees",
        "fan-out": "a row is a rollout",
        "rejection": "the mask is taken as final",
    },
    "notes": [
        "clipping, selection, importance ratios, rollout correction and KL are not exercised"
    ],
}


class Config(StandIn):
    """Options by attribute, and by ``get``, as in verl's."""

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


def call(policy_loss: Any, losses: Any, batch: Any) -> Any:
    counts = StandInDict(
        dp_size=batch.dp_size,
        batch_num_tokens=batch.num_tokens,
        global_batch_size=batch.num_rollouts,
        loss_scale_factor=batch.divisor,
    )
    config = Config(
        global_batch_info=counts,
        **dict.fromkeys(("clip_ratio", "clip_ratio_low", "clip_ratio_high"), 0.2),
        clip_ratio_c=3.0,
        policy_loss=StandIn(
            **dict.fromkeys(("clip_cov_ratio", "kl_cov_ratio"), 2e-4),
            clip_cov_lb=1.0,
            clip_cov_ub=5.0,
            ppo_kl_coef=1.0,
        ),
    )
    zeros = torch.zeros_like(losses.detach())
    loss, _ = policy_loss(
        old_log_prob=zeros,
        log_prob=zeros,
        advantages=-losses,
        response_mask=batch.mask,
        loss_agg_mode=batch.mode,
        config=config,
    )
    return loss
