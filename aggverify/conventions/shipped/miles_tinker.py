"""The ``loss_function`` of miles for the Tinker API, on Megatron.

It has sums, whose weights or advantages a client has normalised, with the scaling that Megatron's
schedule takes back.
"""

from typing import Any
from unittest.mock import patch

import torch

from aggverify.conventions.shipped._miles import losses_module, placed
from aggverify.conventions.stand_ins import StandIn, StandInDict

ADAPTER = {
    "title": "miles' losses of the Tinker API, on Megatron",
    "function": "loss_function",
    "parameters": ["args", "batch", "num_microbatches", "logits", "apply_megatron_loss_scaling"],
    "run_against": [["radixark/miles", "564773aff", "2026-11-27"]],
    "engine": "megatron-sample-raw",
    "modes": {
        "token_sum": "cross_entropy",
        "token_mean": "importance_sampling",
        "sequence_sum": "ppo",
    },
    "not_claimed": {
        "contiguous": "all-gather CP is sliced to zigzag again before the losses",
        "gathered": "losses are never gathered over CP",
        "rejection": "the masks are taken as final",
    },
    "notes": [
        "each mode is one of its losses, normalised by a client: cross_entropy with weights 1, "
        "importance_sampling with advantages over the step's tokens, ppo over its rollouts",
        "ratios are 1 and advantages stand for minus losses: clips are not exercised",
    ],
}


def call(loss_function: Any, losses: Any, batch: Any) -> Any:
    placed(batch)
    units = {"importance_sampling": batch.num_tokens, "ppo": batch.num_rollouts}
    rows = losses.split([len(mask) for mask in batch.local_masks])
    zeros = [torch.zeros_like(row.detach()) for row in rows]
    args = StandIn(
        multi_lora=True,
        qkv_format="thd",
        **dict.fromkeys(("calculate_per_token_loss", "true_on_policy_mode"), False),
        **dict.fromkeys(("recompute_loss_function", "allgather_cp"), False),
    )
    given = StandInDict(
        total_lengths=batch.total_lengths,
        response_lengths=batch.response_lengths,
        loss_masks=[mask.int() for mask in batch.loss_masks],
        unconcat_tokens=None,
        loss_weights=[row + 1 for row in zeros],
        rollout_log_probs=zeros,
        advantages=[-row / max(units.get(batch.mode, 1), 1) for row in rows],
        tinker_loss_by_lane={0: {"loss_fn": batch.mode}},
        tinker_operation_lanes=[0] * len(rows),
    )
    log_probs = [-row for row in rows] if batch.mode == "cross_entropy" else zeros

    def policy(logits: Any, **how: Any) -> Any:
        return {"log_probs": log_probs}

    with patch.object(losses_module(), "get_log_probs_and_entropy", policy):
        loss, normalizer, _ = loss_function(
            *(args, given, batch.num_microbatches, torch.zeros_like(losses.detach())),
            apply_megatron_loss_scaling=True,
            num_rollouts=batch.num_rollouts,
        )
    return loss, normalizer
