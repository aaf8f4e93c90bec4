"""Megatron-LM's ``loss_func`` in its two-output form: a micro-batch's own mean, and the report."""

from typing import Any

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
}


def call(loss_func: Any, losses: Any, batch: Any) -> Any:
    loss, report = loss_func(batch.mask.to(losses.dtype), losses)
    return loss, report
