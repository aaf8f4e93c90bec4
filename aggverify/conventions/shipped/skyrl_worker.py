"""SkyRL's FSDP worker since March 2026, on a stand-in.

It is the policy loss of a micro-batch, whose advantages the driver has scaled, with its KL and
entropy terms; ratios are 1, advantages stand for minus losses.
"""

from typing import Any
from unittest.mock import patch

import torch

from aggverify.conventions.shipped._skyrl import scaled_by_driver, utils
from aggverify.conventions.stand_ins import StandIn

ADAPTER = {
    "title": "SkyRL's FSDP worker, with its KL and entropy terms",
    "function": "PolicyWorkerBase._forward_backward_micro",
    "parameters": ["self", "experience", "microbatch_weight"],
    "named": True,
    "run_against": [
        ["skyrl", "0.4.0", "2026-11-26"],
        ["skyrl", "0.3.0", "2026-11-26"],
    ],
    "engine": "mean",
    "rows": "padded",
    "width": "step",
    "terms": ["kl", "entropy"],
    "modes": {
        "token_mean": "token_mean",
        "sample_mean": "sequence_mean",
        "prompt_mean": "prompt_mean",
        "constant": "seq_mean_token_sum_norm",
        "token_mean_legacy": "token_mean_legacy",
    },
    "not_claimed": {
        "context-parallel": "SkyRL gathers log-probs before its loss; no CP shard is reduced",
        "contiguous": "SkyRL gathers log-probs before its loss; no CP shard is reduced",
        "gathered": "SkyRL gathers log-probs before its loss; no CP shard is reduced",
        "ragged-micro-batches": "rows are cut into micro-batches of one fixed size",
        "fan-out": "a row is a sequence; SkyRL averages over rows",
        "dummy-samples": "a row is a sequence; SkyRL averages over rows",
        "rejection": "the masks are taken as final",
        "poison": "SkyRL's reduce_loss multiplies by the mask and its trainer passes finite losses",
    },
    "notes": [
        "clipping, importance ratios and off-policy corrections are not exercised; KL is its k1 "
        "estimator, both coefficients are 1",
    ],
}


def call(forward_backward: Any, losses: Any, batch: Any, kl: Any, entropy: Any) -> Any:
    scaled = scaled_by_driver(batch, losses.dtype)
    zeros, handed, width = torch.zeros_like(losses.detach()), list[Any](), losses.shape[-1]

    def model(*given: Any, **how: Any) -> Any:
        return zeros, {"entropy": torch.nn.functional.pad(entropy, (0, 1))}

    model.train = lambda: None  # type: ignore[attr-defined]
    coefficients = ("kl_loss_coef", "entropy_loss_coef", "temperature")
    algorithm = StandIn(
        policy_loss_type="regular",
        kl_estimator_type="k1",
        loss_reduction=batch.mode,
        **dict.fromkeys(("use_kl_loss", "use_entropy_loss"), True),
        **dict.fromkeys(coefficients, 1.0),
        **dict.fromkeys(("eps_clip_low", "eps_clip_high"), 0.2),
        off_policy_correction=None,
        enable_sample_support_replay=False,
    )
    worker = StandIn(
        model=model,
        cfg=StandIn(algorithm=algorithm),
        policy_loss_fn=utils().ppo_policy_loss,
        mesh_rank=StandIn(dp_size=batch.dp_size),
        strategy=StandIn(backward=lambda loss, *others: handed.append(loss)),
        scheduler=StandIn(get_last_lr=lambda: [0.0]),
        optimizer=None,
    )
    # response_mask, which was action_mask until August 2026, marks what is no padding.
    absent = ("action_mask", "response_mask", "rollout_logprobs", "pixel_values", "image_grid_thw")
    experience = StandIn(
        to_device=lambda device: None,
        action_log_probs=zeros,
        base_action_log_probs=-kl,
        advantages=-losses * scaled[batch.samples],
        num_actions=width,
        loss_mask=batch.mask.to(losses.dtype),
        **dict.fromkeys(("sequences", "attention_mask"), batch.mask),
        **dict.fromkeys(absent),
    )
    with patch("torch.cuda.current_device", lambda: 0):
        forward_backward(worker, experience, len(batch.samples) / batch.rank_samples)
    return handed[0]
