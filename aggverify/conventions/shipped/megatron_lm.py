"""Megatron-LM's ``loss_func`` in its three-output form: a sum, its tokens, and the report."""

from typing import Any

ADAPTER = {
    "title": "Megatron-LM",
    "function": "loss_func",
    "parameters": ["loss_mask", "output_tensor"],
    "named": True,
    "engine": {
        "megatron-token-raw": ["token_mean"],
        "megatron-three-output": ["token_mean_legacy"],
    },
    "only": ["token_mean", "token_mean_legacy"],
    "not_claimed": {
        "contiguous": "Megatron-LM slices zigzag",
        "gathered": "Megatron-LM never gathers losses",
        "rejection": "the mask is taken as final",
    },
}


def call(loss_func: Any, losses: Any, batch: Any) -> Any:
    loss, num_tokens, report = loss_func(batch.mask.to(losses.dtype), losses)
    return loss, num_tokens, report
