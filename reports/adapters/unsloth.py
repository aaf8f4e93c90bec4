"""Unsloth: TRL's counts and loss types; its Trainer adds micro-batches, DDP averages over ranks."""

import torch

ADAPTER = {
    "engine": "mean",
    "rows": "padded",
    "modes": {"token_mean": "dapo", "sample_mean": "grpo", "constant": "dr_grpo"},
    "unusual": ["generations"],
}


def call(compute_loss, losses, batch):
    zeros = torch.zeros_like(losses.detach())
    how = {"loss_type": batch.mode, "num_processes": batch.dp_size}
    how["max_completion_length"] = batch.divisor
    how["num_items_in_batch"] = torch.tensor(batch.generation_tokens)
    how["current_gradient_accumulation_steps"] = batch.num_microbatches
    how["steps_per_generation"] = batch.num_microbatches * batch.generation_windows
    known = zeros.long(), batch.mask, 0.0, -losses
    return compute_loss(None, zeros, None, None, *known, **how)[0]
