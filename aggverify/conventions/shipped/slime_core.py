"""slime's own ``get_sum_of_sample_mean``, with the denominators its trainer makes for the step."""

from typing import Any

import torch

ADAPTER = {
    "title": "slime's core reducer",
    "function": "get_sum_of_sample_mean",
    "parameters": ["total_lengths", "response_lengths", "loss_masks", "sample_denoms"],
    "run_against": [["THUDM/slime", "624b824a8", "2026-11-26"]],
    "engine": {"megatron-sample": ["sample_mean"], "megatron-token": ["token_mean"]},
    "modes": {"sample_mean": False, "token_mean": True},
    "not_claimed": {
        "contiguous": "all-gather CP is sliced to zigzag again before the reducer runs",
        "gathered": "losses are never gathered over CP before the reducer runs",
        "rejection": "the masks are taken as final",
    },
    "notes": ["clipping, importance ratios and KL come before it and are not exercised"],
}


def call(get_sum_of_sample_mean: Any, losses: Any, batch: Any) -> Any:
    reduce = get_sum_of_sample_mean(
        batch.total_lengths,
        batch.response_lengths,
        [mask.int() for mask in batch.loss_masks],
        sample_denoms=[torch.tensor(float(n), device=losses.device) for n in batch.rollout_tokens],
        calculate_per_token_loss=batch.mode,
    )
    return reduce(losses)
