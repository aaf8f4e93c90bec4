"""Liger: advantages are one a sequence, so the losses go in where rollout importance weights do."""

import torch

ADAPTER = {
    "engine": {"mean": ["token_mean"], "accumulated-mean": []},
    "rows": "padded",
    "modes": {"token_mean": "dapo", "sequence_sum": "luspo", "sample_mean": "grpo"},
}


def call(ppo_loss_fn, losses, batch):
    zeros, ones = torch.zeros_like(losses.detach()), torch.ones_like(batch.mask[:, 0])
    how = {"vllm_is_ratio": losses, "beta": 0.0, "num_items_in_batch": batch.num_tokens}
    return ppo_loss_fn(zeros, batch.mask, -ones, batch.mask, loss_type=batch.mode, **how)[0]
