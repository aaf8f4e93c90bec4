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


def _scores(log_probs: Any, advantages: Any, batch: Any) -> Any:
    mask = torch.cat(batch.local_masks).bool()
    return torch.where(mask, -advantages * torch.where(mask, log_probs, 0.0), 0.0).sum()


def scores(log_probs: Any, advantages: Any, batch: Any) -> Any:
    """As REINFORCE has it."""
    return _scores(log_probs, advantages, batch) / max(batch.num_tokens, 1)


def scores_before_the_division(log_probs: Any, advantages: Any, batch: Any) -> Any:
    """Of the gradient above, with its sum reported."""
    total = _scores(log_probs, advantages, batch)
    mean = total / max(batch.num_tokens, 1)
    return mean + (total - mean).detach()


def with_a_penalty(log_probs: Any, advantages: Any, batch: Any) -> Any:
    """Right, with a KL penalty whose gradient is 0.05 a token whatever the ratio."""
    mask = torch.cat(batch.local_masks).bool()
    apart = torch.where(mask, log_probs - batch.ref_log_probs, 0.0)
    return right(log_probs, advantages, batch) + 0.05 * apart.sum() / max(batch.num_tokens, 1)


def _at_ratio_1(log_probs: Any, advantages: Any, batch: Any, other: Any) -> Any:
    mask = torch.cat(batch.local_masks).bool()
    if not bool(torch.where(mask, log_probs.detach() == other, True).all()):
        raise ValueError("a ratio is not 1")
    return right(log_probs, advantages, batch)


def at_ratio_1_to_old(log_probs: Any, advantages: Any, batch: Any) -> Any:
    return _at_ratio_1(log_probs, advantages, batch, batch.old_log_probs)


def at_ratio_1_to_rollout(log_probs: Any, advantages: Any, batch: Any) -> Any:
    return _at_ratio_1(log_probs, advantages, batch, batch.rollout_log_probs)


def at_ratio_1_to_ref(log_probs: Any, advantages: Any, batch: Any) -> Any:
    return _at_ratio_1(log_probs, advantages, batch, batch.ref_log_probs)
