"""OpenRLHF's ``aggregate_loss`` under DeepSpeed, which divides by the accumulation steps.

The counts of the optimizer step are divided by them first.
"""

from typing import Any

ADAPTER = {
    "title": "OpenRLHF",
    "function": "aggregate_loss",
    "parameters": [
        "loss",
        "loss_mask",
        "token_level_loss",
        "dp_size",
        "batch_num_tokens",
        "global_batch_size",
    ],
    "run_against": [["openrlhf", "0.11.2", "2026-11-26"]],
    "engine": ["accumulated-mean", "deepspeed"],
    "rows": "padded",
    "modes": {"token_mean": True, "sample_mean": False},
    "not_claimed": {
        "context-parallel": "ring attention gathers log-probabilities before the loss",
        "contiguous": "ring attention gathers log-probabilities before the loss",
        "gathered": "each rank's backward takes its own slice, which aggregate_loss does not see",
        "fan-out": "a row is a rollout",
        "rejection": "the mask is taken as final",
    },
    "notes": [
        "its trainer counts rows with a token only: --policy empty_units=exclude is its reading",
        "clipping, importance ratios and KL around aggregate_loss are not exercised",
    ],
}


def call(aggregate_loss: Any, losses: Any, batch: Any) -> Any:
    return aggregate_loss(
        losses,
        batch.mask,
        token_level_loss=batch.mode,
        dp_size=batch.dp_size,
        batch_num_tokens=batch.num_tokens / batch.num_microbatches,
        global_batch_size=batch.num_valid_samples / batch.num_microbatches,
    )
