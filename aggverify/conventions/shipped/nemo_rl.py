"""NeMo-RL's ``masked_mean`` with the step's counts, as its loss functions call it.

Once by token, or of sequences' own means, where a sequence that only fills up a batch has no part.
"""

from typing import Any

import torch

ADAPTER = {
    "title": "NeMo-RL",
    "function": "masked_mean",
    "parameters": ["values", "mask", "dim", "global_normalization_factor"],
    "engine": "sum",
    "rows": "padded",
    "modes": {"token_mean": True, "sample_mean": False},
    "not_claimed": {
        "context-parallel": "log-probabilities are gathered over context parallelism first",
        "contiguous": "log-probabilities are gathered over context parallelism first",
        "gathered": "the gather's backward adds up what all copies say, which masked_mean "
        "does not see",
        "fan-out": "a row is a rollout",
        "dummy-samples": "its trainer fills up with sequences of no weight in sample_mask",
        "rejection": "the mask is taken as final",
    },
    "notes": ["clipping, importance ratios and KL around masked_mean are not exercised"],
    "run_against": [["NVIDIA-NeMo/RL", "7ea279abf", "2026-11-27"]],
}


def call(masked_mean: Any, losses: Any, batch: Any) -> Any:
    if batch.mode:  # token_level_loss
        return masked_mean(losses, batch.mask, global_normalization_factor=batch.num_tokens)
    own = masked_mean(losses, batch.mask, dim=-1)
    every = torch.ones_like(own.detach())
    return masked_mean(own, every, global_normalization_factor=batch.num_samples)
