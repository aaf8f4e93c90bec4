"""Megatron-LM's ``loss_func`` in its three-output form: a sum, its tokens, and the report.

Of ``pretrain_gpt.py``, and of ``train_rl.py``, which is given more to log.
"""

import inspect
from typing import Any
from unittest.mock import patch

import torch

from aggverify.conventions.stand_ins import StandIn

ADAPTER = {
    "title": "Megatron-LM",
    "function": "loss_func",
    "parameters": ["loss_mask", "output_tensor"],
    "named": True,
    "engine": {
        "megatron-token-raw": ["token_mean"],
        "megatron-three-output": ["token_mean_legacy"],
    },
    "only": ["token_mean", "token_mean_legacy"],
    "rows": "packed",
    "not_claimed": {
        "contiguous": "Megatron-LM slices zigzag",
        "gathered": "Megatron-LM never gathers losses",
        "rejection": "the mask is taken as final",
    },
    "run_against": [["NVIDIA/Megatron-LM", "d98e8a64dd", "2026-11-26"]],
}
NEVER = ("check_for_nan_in_loss_and_grad", "check_for_spiky_loss", "modelopt_enabled")
LOGGED = ("kl_term", "ratios", "entropy_term", "truncated_from_above", "truncated_from_below")


def get_args() -> Any:
    return StandIn(logits_load_dir=None, **dict.fromkeys(NEVER, False))


def call(loss_func: Any, losses: Any, batch: Any) -> Any:
    function = inspect.unwrap(loss_func)
    names, own = inspect.signature(function).parameters, getattr(function, "__globals__", {})
    given = {name: torch.zeros_like(losses.detach()) for name in LOGGED if name in names}
    known = {"get_args": get_args, "get_rerun_state_machine": StandIn}
    stood_in = patch.dict(own, {name: known[name] for name in known if name in own})
    with stood_in, patch.object(torch.Tensor, "cuda", lambda tensor: tensor):
        mask = batch.mask.to(losses.dtype)
        loss, num_tokens, report = loss_func(loss_mask=mask, output_tensor=losses, **given)
    return loss, num_tokens, report
