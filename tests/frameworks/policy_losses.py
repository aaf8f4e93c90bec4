"""The shipped policy losses, under names of their own."""

import runpy
from typing import Any

import torch

from tests.conftest import EXAMPLES


def _loss(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / "policy_loss" / f"{name}.py"))["loss"]


right = _loss("token_mean")
own_mean = _loss("broken/own_mean")
masked_after_exp = _loss("broken/masked_after_exp")
clip_cov = _loss("broken/clip_cov")


def only_with_advantage(log_probs: Any, advantages: Any, batch: Any) -> Any:
    """Tokens whose advantage is 0 have no part in the update, and are not counted either."""
    mask = torch.cat(batch.local_masks).bool()
    log_ratio = torch.where(mask, log_probs - batch.old_log_probs, 0.0)
    loss = torch.where(mask, -advantages * log_ratio.exp(), 0.0).sum()
    without = int((mask & (advantages == 0)).sum())
    return loss / max(batch.num_tokens - without, 1)
