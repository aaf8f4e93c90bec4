"""miles' ``loss_function`` under FSDP, which averages gradients and drops the count that comes with
a loss; the model's output stands for per-token losses, which a custom loss hands to the reducer."""

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

ADAPTER = {
    "title": "miles' trainer part under FSDP",
    "function": "loss_function",
    "parameters": ["args", "batch", "num_microbatches", "logits", "apply_megatron_loss_scaling"],
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


def custom_loss(args: Any, batch: Any, logits: Any, sum_of_sample_mean: Any) -> Any:
    loss = sum_of_sample_mean(logits)
    metric = sum_of_sample_mean(logits.detach().abs())
    return loss, {"loss": loss.detach(), "metric": metric}


HOMES = "metrics.log_utils", "log_utils"


@cache
def merger() -> Callable[..., Any] | None:
    """miles' own, with whatever counts a key has."""
    for home in HOMES:
        with suppress(ImportError, AttributeError):
            module = import_module(f"miles.backends.training_utils.{home}")
            found: Callable[..., Any] = module.aggregate_train_losses
            return found
    return None


def call(loss_function: Any, losses: Any, batch: Any) -> Any:
    alone = SimpleNamespace(rank=0, size=1, group=None)
    data = SimpleNamespace(rank=batch.dp_rank, size=batch.dp_size, group=batch.dp_group)
    parallel = import_module("miles.backends.training_utils.parallel")
    state = SimpleNamespace(cp=alone, intra_dp=data, intra_dp_cp=data, is_ulysses_cp=False)
    parallel.set_parallel_state(state)
    args = SimpleNamespace(
        loss_type="custom_loss",
        custom_loss_function_path=f"{__name__}.custom_loss",
        calculate_per_token_loss=batch.mode,
        global_batch_size=batch.num_rollouts,
        qkv_format="thd",
        **dict.fromkeys(("recompute_loss_function", "allgather_cp"), False),
        **dict.fromkeys(("use_dynamic_global_batch_size", "true_on_policy_mode"), False),
    )
    given = {
        "total_lengths": batch.total_lengths,
        "response_lengths": batch.response_lengths,
        "loss_masks": [mask.int() for mask in batch.loss_masks],
    }
    scaled, _, log = loss_function(args, given, batch.num_microbatches, losses)
    how = {"parallel_state": state}
    return (scaled, log | how) if merger() else scaled


def merge_logs(logs: Any, ctx: Any) -> Any:
    merge = merger()
    assert merge is not None
    takes = inspect.signature(merge).parameters
    return merge(logs, **{name: logs[0][name] for name in takes if name in logs[0]})
