"""What Hugging Face's Trainer takes as ``compute_loss_func``.

It multiplies by the number of processes itself, and divides by no accumulation steps.
"""

from __future__ import annotations

from typing import Any

import torch

from aggverify.conventions.shipped.hf_trainer import (
    in_our_losses,
    model_and_inputs,
    num_items_in_batch,
)

ADAPTER = {
    "title": "Hugging Face's compute_loss_func",
    "function": "compute_loss_func",
    "parameters": ["outputs", "labels", "num_items_in_batch"],
    "run_against": [["transformers", "5.24.0", "2026-11-26"]],
    "engine": "mean",
    "rows": "whole",
    "only": ["token_mean", "sample_mean", "constant", "sequence_sum", "token_mean_legacy"],
    "never": {"prompt_mean": "it is given no prompt groups"},
    "not_claimed": {
        "context-parallel": "rows are whole",
        "contiguous": "rows are whole",
        "gathered": "rows are whole",
        "ragged-micro-batches": "per_device_train_batch_size rows in every micro-batch",
        "dummy-samples": "per_device_train_batch_size rows in every micro-batch",
        "fan-out": "a row is a rollout",
        "rejection": "the labels are taken as final",
        "empty-steps": "num_items_in_batch is 0, and the Trainer's own loss 0 / 0",
        "poison": "a logit that is not finite has no finite gradient, behind a label of -100 too",
        "loss-function": "every cross entropy is near 48, so the reported loss is not judged",
    },
    "notes": [
        "run as transformers 5 trains: the model accepts num_items_in_batch, counted over the "
        "accumulation steps and all ranks (average_tokens_across_devices, the default)",
        "every label has a probability near 0: label smoothing, focal factors and z-loss are not "
        "exercised",
    ],
}


def call(compute_loss_func: Any, losses: Any, batch: Any) -> Any:
    model, inputs = model_and_inputs(losses, batch)
    labels, items = inputs.pop("labels"), num_items_in_batch(batch, losses.device)
    loss = compute_loss_func(model(**inputs), labels, num_items_in_batch=items)
    if isinstance(loss, torch.Tensor):
        loss = loss * (batch.dp_size * batch.cp_size)  # as Trainer.compute_loss does
    return in_our_losses(loss, losses)
