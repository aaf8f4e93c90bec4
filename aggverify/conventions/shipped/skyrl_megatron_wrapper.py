"""SkyRL's Megatron wrapper since March 2026, on a stand-in.

The schedule only calls what it is given: a micro-batch's policy loss, whose advantages the driver
has scaled, times what Megatron takes back, with its KL and entropy terms; ratios are 1, advantages
stand for minus losses.
"""

import sys
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import torch

from aggverify.conventions.shipped._skyrl import scaled_by_driver, utils
from aggverify.conventions.stand_ins import StandIn, StandInDict

ADAPTER = {
    "title": "SkyRL's Megatron wrapper, with its KL and entropy terms",
    "function": "MegatronModelWrapper.forward_backward_mini_batch",
    "parameters": ["self", "micro_batches", "seq_len", "micro_batch_size", "loss_fn"],
    "named": True,
    "run_against": [
        ["skyrl", "0.4.0", "2026-11-26"],
        ["skyrl", "0.3.0", "2026-11-26"],
        ["skyrl", "0.2.0", "2026-11-26"],
    ],
    "engine": "skyrl-megatron-raw",
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
        "contiguous": "SkyRL gathers log-probs before its loss; no CP shard is reduced",
        "ragged-micro-batches": "rows are cut into micro-batches of one fixed size",
        "fan-out": "a row is a sequence; SkyRL averages over rows",
        "dummy-samples": "a row is a sequence; SkyRL averages over rows",
        "rejection": "the masks are taken as final",
        "poison": "SkyRL's reduce_loss multiplies by the mask and its trainer passes finite losses",
    },
    "notes": [
        "clipping, importance ratios and off-policy corrections are not exercised; KL is its k1 "
        "estimator, both coefficients are 1; neither are packing, MTP and pipeline parallelism",
    ],
}


def megatron(batch: Any, values: Any, entropy: Any, handed: list[Any]) -> dict[str, Any]:
    """Return what stands for Megatron and the model in the wrapper's module."""

    def schedule(*, forward_step_func: Any, data_iterator: Any, model: Any, **how: Any) -> Any:
        output, loss_func = forward_step_func(data_iterator, model[0])
        loss, metrics = loss_func(output)
        handed.append(loss)
        return [metrics]

    def ranks(with_context_parallel: bool = False) -> int:
        return int(batch.dp_size * (batch.cp_size if with_context_parallel else 1))

    parallel_state = StandIn(
        get_data_parallel_world_size=ranks,
        get_context_parallel_world_size=lambda: batch.cp_size,
        **dict.fromkeys(("is_pipeline_first_stage", "is_pipeline_last_stage"), lambda **how: True),
        get_tensor_model_parallel_rank=lambda: 0,
        **dict.fromkeys(("get_tensor_model_parallel_group", "get_context_parallel_group"), int),
        **dict.fromkeys(
            ("get_pipeline_model_parallel_group", "get_pipeline_model_parallel_last_rank"), int
        ),
    )
    return {
        "mpu": parallel_state,
        "get_forward_backward_func": lambda: schedule,
        "get_model_config": lambda model: StandIn(mtp_num_layers=None, fp8=None),
        # The wrapper adds keys to the batches that it gets.
        "make_batch_generator": lambda batches, vpp_size: map(StandInDict, batches),
        "remove_left_padding": lambda *args, **how: (None, None, None),
        "recover_left_padding": lambda output, *args, **how: output,
        "to_te_attention_mask": lambda mask: mask,
        "maybe_capture_mtp_hidden": lambda *args: nullcontext(),
        "from_parallel_logits_to_logprobs": lambda *args, **how: values,
        "vocab_parallel_entropy": lambda logits, **how: entropy,
    }


def call(forward_backward: Any, losses: Any, batch: Any, kl: Any, entropy: Any) -> Any:
    scaled = scaled_by_driver(batch, losses.dtype)
    zeros, handed = torch.zeros_like(losses.detach()), list[Any]()
    algorithm = StandIn(
        policy_loss_type="regular",
        kl_estimator_type="k1",
        loss_reduction=batch.mode,
        **dict.fromkeys(("use_kl_loss", "use_entropy_loss"), True),
        **dict.fromkeys(("kl_loss_coef", "entropy_loss_coef"), 1.0),
        **dict.fromkeys(("eps_clip_low", "eps_clip_high"), 0.2),
        off_policy_correction=None,
        enable_sample_support_replay=False,
    )
    mtp = ("mtp_loss_weight", "mtp_loss_chunk_size", "mtp_loss_topk")
    policy = StandIn(megatron_config=StandIn(**dict.fromkeys(mtp, 0)))
    chunks = ("logprobs_chunk_size", "vocab_entropy_chunk_size", "vocab_entropy_chunk_memory_mb")
    off = ("remove_microbatch_padding", "use_sample_packing", "is_vlm", "_fused_lm_head")
    wrapper = StandIn(
        cfg=StandIn(algorithm=algorithm, policy=policy, **dict.fromkeys(chunks)),
        actor_module=[lambda *args, **how: zeros[..., None]],
        policy_loss_fn=utils().ppo_policy_loss,
        **dict.fromkeys(off, False),
    )
    micro_batch = StandInDict(
        num_actions=losses.shape[-1],
        old_action_log_probs=zeros,
        base_action_log_probs=-kl,
        advantages=-losses * scaled[batch.samples],
        loss_mask=batch.mask.to(losses.dtype),
        **dict.fromkeys(("rollout_action_logprobs", "rollout_expert_indices")),
        **dict.fromkeys(("sequences", "attention_mask", "position_ids"), batch.mask),
        **dict.fromkeys(("num_microbatches", "num_real_microbatches"), batch.num_microbatches),
    )
    module = sys.modules[forward_backward.__module__]
    instead = megatron(batch, zeros, entropy, handed)
    known = {name: value for name, value in instead.items() if hasattr(module, name)}
    silent = patch("torch.distributed.broadcast_object_list", lambda *args, **how: None)
    here = patch("torch.cuda.current_device", lambda: losses.device)
    with patch.multiple(module, **known), silent, here:
        forward_backward(wrapper, [micro_batch], losses.shape[-1], len(batch.samples))
    return handed[0]
