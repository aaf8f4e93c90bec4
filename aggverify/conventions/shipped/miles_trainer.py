"""miles' ``loss_function`` on Megatron: the reducer and the scaling that Megatron's schedule takes
back, in one; the model's output stands for per-token losses, which a custom loss hands on."""

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

ADAPTER = {
    "title": "miles' trainer part on Megatron",
    "function": "loss_function",
    "parameters": ["args", "batch", "num_microbatches", "logits", "apply_megatron_loss_scaling"],
    "engine": {"megatron-sample-raw": ["sample_mean"], "megatron-token-raw": ["token_mean"]},
    "modes": {"sample_mean": False, "token_mean": True},
    "unusual": ["bshd"],
    "logs": "merge_logs",
    "not_claimed": {
        "contiguous": "all-gather CP is sliced to zigzag again before the reducer runs",
        "gathered": "losses are never gathered over CP before the reducer runs",
        "rejection": "the masks are taken as final",
        "fan-out": "every sample is counted by itself",
    },
    "notes": [
        "run with loss_type custom_loss: clipping, importance ratios and KL are not exercised",
        "miles counts a fully masked sample as one token: --policy phantom_tokens=yes is its "
        "reading of token_mean",
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
    place = {
        "cp": SimpleNamespace(rank=batch.cp_rank, size=batch.cp_size, group=batch.cp_group),
        "intra_dp": SimpleNamespace(rank=batch.dp_rank, size=batch.dp_size, group=batch.dp_group),
        "intra_dp_cp": SimpleNamespace(size=batch.dp_size * batch.cp_size, group=batch.dp_cp_group),
    }
    parallel = import_module("miles.backends.training_utils.parallel")
    state = SimpleNamespace(**place, is_ulysses_cp=False)
    parallel.set_parallel_state(state)
    args = SimpleNamespace(
        loss_type="custom_loss",
        custom_loss_function_path=f"{__name__}.custom_loss",
        calculate_per_token_loss=batch.mode,
        global_batch_size=batch.num_rollouts,
        qkv_format="bshd" if batch.cp_kind == "bshd" else "thd",
        **dict.fromkeys(("recompute_loss_function", "allgather_cp"), False),
        **dict.fromkeys(("use_dynamic_global_batch_size", "true_on_policy_mode"), False),
    )
    given = {
        "total_lengths": batch.total_lengths,
        "response_lengths": batch.response_lengths,
        "loss_masks": [mask.int() for mask in batch.loss_masks],
    }
    if batch.cp_kind == "bshd":
        given["max_seq_lens"] = [batch.rank_width] * len(batch.total_lengths)
    scaled, normalizer, log = loss_function(
        args, given, batch.num_microbatches, losses, apply_megatron_loss_scaling=True
    )
    how = {"parallel_state": state, "num_rollouts": None if batch.mode else batch.num_rollouts}
    return scaled, normalizer, log | how if merger() else None


def merge_logs(logs: Any, ctx: Any) -> Any:
    merge = merger()
    assert merge is not None
    takes = inspect.signature(merge).parameters
    return merge(logs, **{name: logs[0][name] for name in takes if name in logs[0]})
