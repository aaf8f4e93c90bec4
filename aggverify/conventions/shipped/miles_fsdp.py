"""The ``loss_function`` of miles under FSDP.

FSDP averages gradients and drops the count that comes with a loss; the model's output stands for
per-token losses, which a custom loss hands to the reducer.
"""

from typing import Any

from aggverify.conventions.shipped._miles import custom_loss, merged, merger, placed
from aggverify.conventions.stand_ins import StandIn, StandInDict

ADAPTER = {
    "title": "miles' trainer part under FSDP",
    "function": "loss_function",
    "parameters": ["args", "batch", "num_microbatches", "logits", "apply_megatron_loss_scaling"],
    "run_against": [["radixark/miles", "31f1ca961", "2026-11-26"]],
    "engine": "miles-fsdp",
    "modes": {"sample_mean": False, "token_mean": True},
    "always_wrong": {
        "token_mean": "under FSDP miles drops the count, and nothing else divides the losses' sum"
    },
    "logs": "merge_logs",
    "not_claimed": {
        "context-parallel": "sequences are gathered over Ulysses before the loss",
        "contiguous": "sequences are gathered over Ulysses before the loss",
        "gathered": "each rank's backward takes its own slice, which the loss does not see",
        "rejection": "the masks are taken as final",
        "fan-out": "every sample is counted by itself",
    },
    "notes": [
        "run with loss_type custom_loss: clipping, importance ratios and KL are not exercised",
        "the count returned with the loss is dropped, as miles does under FSDP: what has to be "
        "divided by, loss_function itself must have divided by",
    ],
}


def call(loss_function: Any, losses: Any, batch: Any) -> Any:
    state = placed(batch, context_parallel=False)
    args = StandIn(
        loss_type="custom_loss",
        custom_loss_function_path=f"{custom_loss.__module__}.custom_loss",
        calculate_per_token_loss=batch.mode,
        global_batch_size=batch.num_rollouts,
        qkv_format="thd",
        **dict.fromkeys(("recompute_loss_function", "allgather_cp"), False),
        **dict.fromkeys(("use_dynamic_global_batch_size", "true_on_policy_mode"), False),
    )
    given = StandInDict(
        total_lengths=batch.total_lengths,
        response_lengths=batch.response_lengths,
        loss_masks=[mask.int() for mask in batch.loss_masks],
    )
    scaled, _, log = loss_function(args, given, batch.num_microbatches, losses)
    return (scaled, log | {"parallel_state": state}) if merger() else scaled


def merge_logs(logs: Any, ctx: Any) -> Any:
    return merged(logs)
