"""The ``loss_function`` of slime.

It is the reducer and the scaling that Megatron's schedule takes back, in one, with the logs that
its trainer merges; the model's output stands for per-token losses, which a custom loss hands to the
reducer.
"""

from typing import Any

import torch

from aggverify.conventions.shipped._homes import found
from aggverify.conventions.stand_ins import StandIn, StandInDict

ADAPTER = {
    "title": "slime's trainer part",
    "function": "loss_function",
    "parameters": ["args", "batch", "num_microbatches", "step_global_batch_size", "logits"],
    "run_against": [["THUDM/slime", "624b824a8", "2026-11-26"]],
    "engine": {"megatron-sample-raw": ["sample_mean"], "megatron-token-raw": ["token_mean"]},
    "modes": {"sample_mean": False, "token_mean": True},
    "logs": "merge_logs",
    "not_claimed": {
        "contiguous": "all-gather CP is sliced to zigzag again before the reducer runs",
        "gathered": "losses are never gathered over CP before the reducer runs",
        "rejection": "the masks are taken as final",
    },
    "notes": [
        "run with loss_type custom_loss: clipping, importance ratios and KL are not exercised",
        "slime counts a fully masked sample as one token: --policy phantom_tokens=yes is its "
        "reading of token_mean",
    ],
}


def custom_loss(args: Any, batch: Any, logits: Any, sum_of_sample_mean: Any) -> Any:
    loss = sum_of_sample_mean(logits)
    metric = sum_of_sample_mean(logits.detach().abs())
    return loss, {"loss": loss.detach(), "metric": metric}


def merger() -> Any:
    """Return slime's own; its older trainers have none, and merge as they go."""
    homes = ("slime.observability.train_metric_utils", "slime.backends.megatron_utils.cp_utils")
    return found("reduce_train_step_metrics", *homes)


def call(loss_function: Any, losses: Any, batch: Any) -> Any:
    args = StandIn(
        loss_type="custom_loss",
        custom_loss_function_path=f"{__name__}.custom_loss",
        calculate_per_token_loss=batch.mode,
        global_batch_size=batch.num_rollouts,
        recompute_loss_function=False,
        allgather_cp=False,
    )
    counts = [torch.tensor(float(n), device=losses.device) for n in batch.rollout_tokens]
    given = StandInDict(
        total_lengths=batch.total_lengths,
        response_lengths=batch.response_lengths,
        loss_masks=[mask.int() for mask in batch.loss_masks],
        rollout_mask_sums=counts,
    )
    sizes = batch.num_microbatches, batch.num_rollouts
    scaled, normalizer, log = loss_function(args, given, *sizes, losses)
    how = {"per_token": batch.mode, "rollouts": batch.num_rollouts}
    return scaled, normalizer, log | how if merger() else None


def merge_logs(logs: Any, ctx: Any) -> Any:
    return merger()(
        logs,
        calculate_per_token_loss=logs[0]["per_token"],
        step_global_batch_size=logs[0]["rollouts"],
        cp_size=ctx.cp_size,
        dp_with_cp_group=ctx.dp_cp_group,
    )
