"""The ``compute_loss`` of prime-rl.

It has sums over a micro-batch's packed sequences, divided by counts that were reduced over the
step; the average that FSDP takes is multiplied back.
"""

from typing import Any

import torch

from aggverify.conventions.stand_ins import StandIn

ADAPTER = {
    "title": "prime-rl",
    "function": "compute_loss",
    "parameters": [
        "trainer_logprobs",
        "inference_logprobs",
        "advantages",
        "loss_mask",
        "rl_loss_fn",
        "rl_scale",
        "ce_scale",
    ],
    "engine": "sum",
    "only": ["token_mean"],
    "not_claimed": {
        "contiguous": "it slices the packed sequences itself, before the loss",
        "gathered": "losses are never gathered over context parallelism",
        "fan-out": "a sequence is a rollout",
        "rejection": "the mask is taken as final",
    },
    "notes": [
        "run with a masked sum for rl_loss_fn: clipping, importance ratios and KL are not exercised"
    ],
    "run_against": [["PrimeIntellect-ai/prime-rl", "559b44772", "2026-11-27"]],
}


def masked_sum(inputs: Any) -> Any:
    kept = torch.where(inputs.loss_mask, -inputs.trainer_logprobs * inputs.advantages, 0)
    return StandIn(loss=kept.sum(), metrics={})


def call(compute_loss: Any, losses: Any, batch: Any) -> Any:
    lengths = [len(mask) for mask in batch.local_masks]
    ones = torch.ones_like(losses.detach()).split(lengths)
    # Newer versions take an object, and call its loss.
    masked_sum.loss = masked_sum  # type: ignore[attr-defined]
    loss, _ = compute_loss(
        trainer_logprobs=(-losses).split(lengths),
        inference_logprobs=ones,
        ref_logprobs=None,
        advantages=ones,
        loss_mask=[mask.bool() for mask in batch.local_masks],
        rl_weights=None,
        ce_weights=None,
        ref_kl_weights=None,
        rl_loss_fn=masked_sum,
        rl_scale=max(batch.num_tokens, 1),
        ce_scale=1,
        ref_kl_scale=1,
    )
    return loss
