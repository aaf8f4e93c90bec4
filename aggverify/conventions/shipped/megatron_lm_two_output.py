"""Megatron-LM's ``loss_func`` in its two-output form: a micro-batch's own mean, and the report."""

import inspect
from typing import Any
from unittest.mock import patch

from aggverify.conventions.stand_ins import StandIn

ADAPTER = {
    "title": "Megatron-LM, two outputs",
    "function": "loss_func",
    "parameters": ["loss_mask", "output_tensor"],
    "named": True,
    "engine": "megatron-two-output",
    "only": ["token_mean_legacy"],
    "never": {
        "token_mean": "it gets neither the step's tokens nor K, by which its loss is divided: "
        "it can only be token_mean_legacy"
    },
    "not_claimed": {
        "contiguous": "Megatron-LM slices zigzag",
        "gathered": "Megatron-LM never gathers losses",
        "rejection": "the mask is taken as final",
    },
    "notes": [
        "up to core_r0.6.0 loss_func multiplies by cp_size itself, since the schedule did not: "
        "--without context-parallel",
    ],
    "run_against": [["NVIDIA/Megatron-LM", "cac60ce4c8", "2026-11-27"]],
}


def call(loss_func: Any, losses: Any, batch: Any) -> Any:
    args = StandIn(context_parallel_size=batch.cp_size, check_for_nan_in_loss_and_grad=False)
    own = getattr(inspect.unwrap(loss_func), "__globals__", {})
    with patch.dict(own, {"get_args": lambda: args} if "get_args" in own else {}):
        loss, report = loss_func(batch.mask.to(losses.dtype), losses)
    return loss, report
