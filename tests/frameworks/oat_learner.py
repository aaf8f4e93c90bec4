"""A learning step as oat has it, of one micro-batch, and its twin."""

from __future__ import annotations

from typing import Any

import torch

from tests.frameworks.twins import twin, wrong


def masked_mean(values: Any, mask: Any, axis: int) -> Any:
    return torch.where(mask, values, 0).sum(axis) / mask.sum(axis).clamp(min=1)


def masked_sum(values: Any, mask: Any, axis: int, constant_normalizer: float) -> Any:
    return torch.where(mask, values, 0).sum(axis) / constant_normalizer


class PPOLearner:
    """oat's."""

    def learning_step(self: Any, trajectory: Any) -> Any:
        rows, kept = self.args.train_batch_size_per_device, self.get_completion_mask()[:, 1:]
        advantages = self.compute_monte_carlo_advantages()[:, None]
        log_probs, _ = self.get_batch_logps(input_ids=trajectory["input_ids"])
        losses = -advantages * torch.exp(log_probs - log_probs.detach())
        means = self.masked_aggregator(losses, kept, axis=1)
        means = means * torch.tensor(trajectory["loss_masks"])
        loss = means.sum() / (2 if wrong("oat") else rows)  # 15: a constant where rows are meant
        self.strategy.backward(loss, None, None)


wrong_oat = twin("oat", PPOLearner.learning_step)
