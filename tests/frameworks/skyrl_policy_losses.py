"""SkyRL's own policy losses that select by value, out of the wheel named by AGGVERIFY_SKYRL, with
advantages that its driver has scaled."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import standins
import torch

standins.install()
sys.path.insert(0, os.environ["AGGVERIFY_SKYRL"])

from skyrl.backends.skyrl_train.utils import ppo_utils  # noqa: E402

CONFIG = SimpleNamespace(
    **dict.fromkeys(("eps_clip_low", "eps_clip_high"), 0.2),
    clip_cov=SimpleNamespace(clip_ratio=1.0, clip_cov_lb=0.001, clip_cov_ub=5.0),
    kl_cov=SimpleNamespace(kl_cov_frac=0.5, ppo_kl_coef=1.0),
)


def _token_mean(policy_loss: Any, log_probs: Any, advantages: Any, batch: Any) -> Any:
    masks = batch.padded(batch.step_masks, width="step").to(log_probs.dtype)
    scale = ppo_utils.apply_loss_reduction_to_advantages_minibatch(
        torch.ones_like(masks), masks, "token_mean", len(batch.samples), None
    )
    own, given, old = (
        batch.padded(each, width="step") for each in (log_probs, advantages, batch.old_log_probs)
    )
    mask = masks[batch.samples]
    return policy_loss(own, old, given * scale[batch.samples], CONFIG, loss_mask=mask)[0]


def kl_cov(log_probs: Any, advantages: Any, batch: Any) -> Any:
    return _token_mean(ppo_utils.compute_policy_loss_kl_cov, log_probs, advantages, batch)


def clip_cov(log_probs: Any, advantages: Any, batch: Any) -> Any:
    return _token_mean(ppo_utils.compute_policy_loss_clip_cov, log_probs, advantages, batch)
