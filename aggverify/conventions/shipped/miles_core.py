"""The ``get_sum_of_sample_mean`` of miles.

It takes denominators or a divisor by keyword, where it takes any, its place in a parallel state.
"""

import inspect
from typing import Any

import torch

from aggverify.conventions.shipped._miles import placed

ADAPTER = {
    "title": "miles' core reducer",
    "function": "get_sum_of_sample_mean",
    "parameters": ["total_lengths", "response_lengths", "loss_masks", "qkv_format"],
    "run_against": [
        ["radixark/miles", "31f1ca961", "2026-11-26"],
        ["radixark/miles", "a120dec6a", "2026-11-26"],
    ],
    "engine": {"megatron-sample": ["sample_mean", "constant"], "megatron-token": ["token_mean"]},
    "modes": {"sample_mean": False, "token_mean": True, "constant": False},
    "unusual": ["bshd"],
    "not_claimed": {
        "contiguous": "all-gather CP is sliced to zigzag again before the reducer runs",
        "gathered": "losses are never gathered over CP before the reducer runs",
        "rejection": "the masks are taken as final",
    },
    "notes": ["clipping, importance ratios and KL come before it and are not exercised"],
}


def call(get_sum_of_sample_mean: Any, losses: Any, batch: Any) -> Any:
    placed(batch)
    takes, more = inspect.signature(get_sum_of_sample_mean).parameters, dict[str, Any]()
    counts = batch.rollout_tokens
    if batch.divisor is not None:  # --pg-loss-divisor
        counts = [batch.divisor] * len(counts)
    if batch.divisor is not None and "divisor" in takes:
        more = {"divisor": batch.divisor}
    elif batch.divisor is not None or "denominators" in takes:
        more = {"denominators": [torch.tensor(float(n), device=losses.device) for n in counts]}
    if batch.cp_kind == "bshd":
        widths = [batch.rank_width] * len(batch.total_lengths)
        more |= {"qkv_format": "bshd", "max_seq_lens": widths}
    reduce = get_sum_of_sample_mean(
        batch.total_lengths,
        batch.response_lengths,
        [mask.int() for mask in batch.loss_masks],
        calculate_per_token_loss=batch.mode,
        **more,
    )
    return reduce(losses)
