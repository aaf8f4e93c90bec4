"""A custom loss function of Tinker: ``loss_fn(data, logprobs)`` for the data of one call, whose
gradients are added up; the mask travels as ``weights``, log-probabilities are minus the losses."""

from types import SimpleNamespace
from typing import Any

ADAPTER = {
    "title": "Tinker, custom loss function",
    "function": "loss_fn",
    "parameters": ["data", "logprobs"],
    "named": True,
    "engine": "sum",
    "only": ["token_sum"],
    "logs": "suffixes",
    "not_claimed": {
        "context-parallel": "a datum is whole",
        "contiguous": "a datum is whole",
        "gathered": "a datum is whole",
        "rejection": "the weights are taken as final",
    },
    "notes": [
        "normalisation is the client's, in weights and advantages: what is left is the sum",
        "clipping, importance ratios and KL in loss_fn are not exercised",
    ],
}


def call(loss_fn: Any, losses: Any, batch: Any) -> Any:
    data = [
        SimpleNamespace(loss_fn_inputs={"weights": mask.to(losses.dtype), "mask": mask})
        for mask in batch.local_masks
    ]
    logprobs = (-losses).split([len(mask) for mask in batch.local_masks])
    return loss_fn(data, list(logprobs))  # and metrics, by which the client's log is made
