"""The ``loss_function`` of miles on Megatron.

It is the reducer and the scaling that Megatron's schedule takes back, in one; the model's output
stands for per-token losses, which a custom loss hands on.
"""

import inspect
from typing import Any

import torch

from aggverify.conventions.shipped._miles import custom_loss, merged, merger, placed
from aggverify.conventions.stand_ins import StandIn, StandInDict

ADAPTER = {
    "title": "miles' trainer part on Megatron",
    "function": "loss_function",
    "parameters": ["args", "batch", "num_microbatches", "logits", "apply_megatron_loss_scaling"],
    "run_against": [
        ["radixark/miles", "31f1ca961", "2026-11-26"],
        ["radixark/miles", "18fd8d82b", "2026-11-26"],
    ],
    "engine": {"megatron-sample-raw": ["sample_mean"], "megatron-token-raw": ["token_mean"]},
    "modes": {"sample_mean": False, "token_mean": True},
    "unusual": ["bshd"],
    "logs": "merge_logs",
    "not_claimed": {
        "contiguous": "all-gather CP is sliced to zigzag again before the reducer runs",
        "gathered": "losses are never gathered over CP before the reducer runs",
        "rejection": "the masks are taken as final",
    },
    "told_by": {"fan-out": "num_rollouts"},
    "notes": [
        "run with loss_type custom_loss: clipping, importance ratios and KL are not exercised",
        "miles counts a fully masked sample as one token: --policy phantom_tokens=yes is its "
        "reading of token_mean (not that of its pull request 1498)",
    ],
}


def call(loss_function: Any, losses: Any, batch: Any) -> Any:
    state = placed(batch)
    takes = inspect.signature(loss_function).parameters
    args = StandIn(
        loss_type="custom_loss",
        custom_loss_function_path=f"{custom_loss.__module__}.custom_loss",
        calculate_per_token_loss=batch.mode,
        global_batch_size=batch.num_rollouts,
        qkv_format="bshd" if batch.cp_kind == "bshd" else "thd",
        **dict.fromkeys(("recompute_loss_function", "allgather_cp"), False),
        **dict.fromkeys(("use_dynamic_global_batch_size", "true_on_policy_mode"), False),
    )
    given = StandInDict(
        total_lengths=batch.total_lengths,
        response_lengths=batch.response_lengths,
        loss_masks=[mask.int() for mask in batch.loss_masks],
    )
    how = {}
    if "num_rollouts" in takes:  # since 2026-08-04
        counts = [torch.tensor(float(n), device=losses.device) for n in batch.rollout_tokens]
        given["rollout_mask_sums"], how["num_rollouts"] = counts, batch.num_rollouts
    if batch.cp_kind == "bshd":
        given["max_seq_lens"] = [batch.rank_width] * len(batch.total_lengths)
    scaled, normalizer, log = loss_function(
        args, given, batch.num_microbatches, losses, apply_megatron_loss_scaling=True, **how
    )
    how = {"parallel_state": state, "num_rollouts": None if batch.mode else batch.num_rollouts}
    return scaled, normalizer, log | how if merger() else None


def merge_logs(logs: Any, ctx: Any) -> Any:
    return merged(logs)
