"""NeMo-RL's ``masked_mean`` with the step's token count, as its loss functions call it."""

from typing import Any

ADAPTER = {
    "title": "NeMo-RL",
    "function": "masked_mean",
    "parameters": ["values", "mask", "dim", "global_normalization_factor"],
    "engine": "sum",
    "rows": "padded",
    "only": ["token_mean"],
    "not_claimed": {
        "fan-out": "a row is a rollout",
        "rejection": "the mask is taken as final",
        "gathered": "context-parallel ranks keep their own slices",
    },
}


def call(masked_mean: Any, losses: Any, batch: Any) -> Any:
    return masked_mean(losses, batch.mask, global_normalization_factor=batch.num_tokens)
