"""Signatures as frameworks have them, with a right body and a wrong one: what adapters are for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signature:
    """A file with one function. ``mode``: what it implements through its adapter; ``wrong``: a text
    in it and what makes it another mode. ``engine``: where it is right, "" where the adapter leaves
    that to the person. ``left``: what ``aggverify new`` leaves to say, empty where it all runs.
    ``fails``: codes of a mistake that the framework's own function has."""

    name: str
    source: str
    mode: str
    wrong: tuple[str, str]
    engine: str = ""
    left: tuple[str, ...] = ()
    fails: tuple[str, ...] = ()


VERL = Signature(
    "verl_agg_loss",
    """
def agg_loss(loss_mat, loss_mask, loss_agg_mode, dp_size=1, batch_num_tokens=None,
             global_batch_size=None, loss_scale_factor=None):
    if loss_agg_mode == "token-mean":
        return (loss_mat * loss_mask).sum() / max(batch_num_tokens, 1) * dp_size
    raise ValueError(loss_agg_mode)
""",
    "token_mean",
    ("max(batch_num_tokens, 1)", "loss_mask.numel()"),
    "mean",
)
ROLL = Signature(
    "roll_agg_loss",
    """
def agg_loss(loss_mat, loss_mask, loss_agg_mode, batch_num_tokens=None, global_valid_samples=None,
             weights=None):
    assert loss_agg_mode == "token-mean" and weights is None
    return (loss_mat * loss_mask).sum() / max(batch_num_tokens, 1)
""",
    "token_mean",
    ("max(batch_num_tokens, 1)", "global_valid_samples"),
)
OPENRLHF = Signature(
    "openrlhf_aggregate_loss",
    """
def aggregate_loss(loss, loss_mask, token_level_loss=True, dp_size=1, batch_num_tokens=None,
                   global_batch_size=None):
    if token_level_loss:
        return (loss * loss_mask).sum() / max(batch_num_tokens, 1) * dp_size
    rows = (loss * loss_mask).sum(-1) / loss_mask.sum(-1).clamp(min=1)
    return rows.sum() / global_batch_size * dp_size
""",
    "token_mean",
    ("* dp_size", "* 1"),
    "mean",
)
NEMO = Signature(
    "nemo_masked_mean",
    """
import torch

def masked_mean(values, mask, dim=None, global_normalization_factor=None):
    total = torch.sum(values * mask, dim=dim)
    return total / max(global_normalization_factor, 1)
""",
    "token_mean",
    ("max(global_normalization_factor, 1)", "max(int(mask.sum()), 1)"),
)
TRL_DAPO = Signature(
    "trl_dapo",
    """
def dapo_loss(per_token_loss, completion_mask, num_items_in_batch, num_processes):
    return (per_token_loss * completion_mask).sum() / max(num_items_in_batch, 1) * num_processes
""",
    "token_mean",
    (" * num_processes", ""),
    "mean",
)
TRL_DR_GRPO = Signature(
    "trl_dr_grpo",
    """
def dr_grpo(per_token_loss, completion_mask, max_completion_length, num_samples):
    return (per_token_loss * completion_mask).sum() / (num_samples * max_completion_length)
""",
    "constant",
    ("max_completion_length)", "per_token_loss.size(1))"),
)
MEGATRON = Signature(
    "megatron_loss_func",
    """
import torch

def loss_func(loss_mask, output_tensor):
    losses = output_tensor.view(-1)
    loss_mask = loss_mask.view(-1)
    loss = torch.sum(losses * loss_mask)
    num_tokens = loss_mask.sum().clone().detach().to(torch.int)
    report = torch.cat([loss.clone().detach().view(1), num_tokens.view(1)])
    return loss, num_tokens, {"lm loss": report}
""",
    "token_mean",
    (
        "torch.sum(losses * loss_mask)",
        "torch.sum(losses * loss_mask) / loss_mask.sum().clamp(min=1)",
    ),
    "megatron-token",
)
SLIME = Signature(
    "slime_core",
    """
from zigzag import local_masks, masked_sums

def get_sum_of_sample_mean(total_lengths, response_lengths, loss_masks, sample_denoms=None,
                           calculate_per_token_loss=False):
    assert not calculate_per_token_loss
    masks = local_masks(total_lengths, response_lengths, loss_masks)
    def reduce(x):
        sums = masked_sums(x, masks)
        return sum(s / max(denom, 1) for s, denom in zip(sums, sample_denoms))
    return reduce
""",
    "sample_mean",
    ("max(denom, 1)", "max(denom + 1, 1)"),
    "megatron-sample",
)
OPEN_INSTRUCT = Signature(
    "open_instruct_masked_mean",
    """
def masked_mean(values, mask, axis=None, denominator=None):
    return (values * mask).sum() / max(denominator, 1)
""",
    "token_mean",
    ("max(denominator, 1)", "max(int(mask.sum()), 1)"),
)
OAT = Signature(
    "oat_masked_sum",
    """
def masked_sum(tensor, mask, axis, constant_normalizer, num_samples):
    return (tensor * mask).sum(axis) / constant_normalizer / num_samples
""",
    "constant",
    ("/ num_samples", "/ len(mask)"),
)
VERL_POLICY = Signature(
    "verl_policy_loss",
    """
import torch

def compute_policy_loss(old_log_prob, log_prob, advantages, response_mask, cliprange,
                        num_tokens, world_size=1):
    ratio = torch.exp(log_prob - old_log_prob)
    losses = torch.maximum(
        -advantages * ratio, -advantages * torch.clamp(ratio, 1 - cliprange, 1 + cliprange)
    )
    loss = (losses * response_mask).sum() / max(num_tokens, 1) * world_size
    return loss, (ratio > 1 + cliprange).float().mean()
""",
    "token_mean",
    ("max(num_tokens, 1)", "max(response_mask.sum(), 1)"),
    "mean",
)
FLAT = Signature(
    "flat_lists",
    """
def prompt_free(losses, loss_masks, response_lengths, num_samples):
    parts = zip(losses.split(response_lengths), loss_masks)
    return sum((p * m).sum() / max(int(m.sum()), 1) for p, m in parts) / num_samples
""",
    "sample_mean",
    ("/ num_samples", "/ len(loss_masks)"),
)
SIGNATURES = (
    *(VERL, ROLL, OPENRLHF, NEMO, TRL_DAPO, TRL_DR_GRPO, MEGATRON, SLIME),
    *(OPEN_INSTRUCT, OAT, VERL_POLICY, FLAT),
)
VERL_POLICY_LOSS = Signature(
    "verl_compute_policy_loss_vanilla",
    """
import torch

def compute_policy_loss_vanilla(old_log_prob, log_prob, advantages, response_mask,
                                loss_agg_mode="token-mean", config=None, rollout_is_weights=None):
    assert config is not None
    losses = -advantages * torch.exp(log_prob - old_log_prob)
    info = config.global_batch_info
    loss = (losses * response_mask).sum() / info["batch_num_tokens"] * info["dp_size"]
    return loss, {}
""",
    "token_mean",
    ('info["batch_num_tokens"]', "response_mask.sum()"),
    left=("mode", "the call"),
)
MEGATRON_BRIDGE = Signature(
    "megatron_bridge_masked_next_token_loss",
    """
import torch

def masked_next_token_loss(loss_mask, output_tensor, check_for_nan_in_loss=True,
                           check_for_spiky_loss=False):
    losses, mask = output_tensor.view(-1), loss_mask.view(-1)
    loss = torch.sum(losses * mask)
    tokens = mask.sum().clone().detach().to(torch.int)
    return loss, tokens, {"lm loss": torch.stack([loss.clone().detach(), tokens])}
""",
    "token_mean",
    ("torch.sum(losses * mask)", "torch.sum(losses * mask) / mask.sum().clamp(min=1)"),
    "megatron-token",
)
SLIME_HOOK = Signature(
    "slime_hook",
    """
from zigzag import local_masks, masked_sums

def get_pg_loss_reducer(total_lengths, response_lengths, loss_masks,
                        calculate_per_token_loss=False):
    masks = local_masks(total_lengths, response_lengths, loss_masks)
    counts = [max(int(m.sum()), 1) for m in loss_masks]
    return lambda x: sum(s / n for s, n in zip(masked_sums(x, masks), counts))
""",
    "sample_mean",
    ("for m in loss_masks]", "for m in masks]"),
    "megatron-sample",
)
MILES = Signature(
    "miles_core",
    """
from zigzag import local_masks, masked_sums

def get_sum_of_sample_mean(total_lengths, response_lengths, loss_masks,
                           calculate_per_token_loss=False, qkv_format="thd", max_seq_lens=None, *,
                           denominators=None):
    masks = local_masks(total_lengths, response_lengths, loss_masks)
    if denominators is None:
        denominators = [max(int(m.sum()), 1) for m in loss_masks]
    counts = [max(int(n), 1) for n in denominators]
    return lambda x: sum(s / n for s, n in zip(masked_sums(x, masks), counts))
""",
    "sample_mean",
    ("for n in denominators]", "for n in [m.sum() for m in masks]]"),
    "megatron-sample",
)
MILES_STATE = Signature(
    "miles_core_with_parallel_state",
    """
from zigzag import local_masks, masked_sums

def get_sum_of_sample_mean(total_lengths, response_lengths, loss_masks, parallel_state,
                           calculate_per_token_loss=False, qkv_format="thd", max_seq_lens=None,
                           chunk_size=None):
    masks = loss_masks
    if parallel_state.cp_size > 1:
        masks = local_masks(total_lengths, response_lengths, loss_masks)
    counts = [max(int(m.sum()), 1) for m in loss_masks]
    return lambda x: sum(s / n for s, n in zip(masked_sums(x, masks), counts))
""",
    "sample_mean",
    ("for m in loss_masks]", "for m in masks]"),
    "megatron-sample",
)
SLIME_MODES = Signature(
    "slime_and_miles_modes",
    """
def get_pg_loss_reducer(args, batch, *, total_lengths, response_lengths, pg_loss_masks,
                        default_reducer):
    if args.loss_aggregation == "sample_mean":
        return default_reducer
    sums = batch["prompt_mask_sums"]
    return lambda x: sum(
        (p * m).sum() / s for p, m, s in zip(x.split(response_lengths), pg_loss_masks, sums)
    )
""",
    "prompt_mean",
    ('batch["prompt_mask_sums"]', "[m.sum() for m in pg_loss_masks]"),
    left=("engine", "mode", "args", "default_reducer"),
)
SLIME_TRAINER = Signature(
    "slime_trainer_loss_function",
    """
def loss_function(args, batch, num_microbatches, step_global_batch_size, logits):
    loss = args.policy_loss(batch, logits) * num_microbatches / step_global_batch_size
    return loss, 1, {"keys": ["loss"], "values": loss.detach().view(1)}
""",
    "sample_mean",
    ("num_microbatches / ", "1 / "),
    left=("mode", "args", "logits"),
)
SKYRL = Signature(
    "skyrl_advantages",
    """
def apply_loss_reduction_to_advantages_minibatch(advantages, loss_mask, loss_reduction,
                                                 micro_batch_size, max_seq_len,
                                                 prompt_boundaries=None):
    tokens = loss_mask.sum(-1, keepdim=True).clamp(min=1)
    if loss_reduction == "token_mean":
        return advantages / loss_mask.sum().clamp(min=1)
    if loss_reduction == "sequence_mean":
        return advantages / (len(advantages) * tokens)
    if loss_reduction == "seq_mean_token_sum_norm":
        return advantages / (len(advantages) * max_seq_len)
    scaled = advantages.clone()
    for start, end in prompt_boundaries:
        count = loss_mask[start:end].sum().clamp(min=1) * len(prompt_boundaries)
        scaled[start:end] = advantages[start:end] / count
    return scaled

def reduce_loss(loss, loss_mask):
    return (loss * loss_mask).sum()
""",
    "token_mean",
    ("loss_mask.sum().clamp(min=1)", "loss_mask.numel()"),
)
SKYRL_OLD = Signature(
    "skyrl_reduce_loss",
    """
def reduce_loss(loss, loss_mask, loss_reduction, max_seq_len=None):
    if loss_reduction == "token_mean":
        return (loss * loss_mask).sum() / loss_mask.sum().clamp(min=1)
    rows = (loss * loss_mask).sum(-1)
    if loss_reduction == "seq_mean_token_sum_norm":
        return (rows / max_seq_len).mean()
    return (rows / loss_mask.sum(-1).clamp(min=1)).mean()
""",
    "token_mean",
    ("loss_mask.sum().clamp(min=1)", "loss_mask.numel()"),
    fails=("AGV202", "AGV203", "AGV206"),
)
"""Its token mean is that of each micro-batch."""
AREAL = Signature(
    "areal_ppo_actor_loss_fn",
    """
import torch

def ppo_actor_loss_fn(logprobs, proximal_logprobs, old_logprobs, advantages, eps_clip, loss_mask,
                      eps_clip_higher=None, c_clip=None, behav_imp_weight_cap=None,
                      importance_sampling_level="token", cu_seqlens=None,
                      loss_agg_mode="token-mean", rollout_is_weights=None, dp_size=1,
                      batch_num_tokens=None, global_batch_size=None):
    ratio = torch.where(loss_mask, torch.exp(logprobs - proximal_logprobs), 0)
    clipped = torch.clamp(ratio, 1.0 - eps_clip, 1.0 + eps_clip)
    losses = torch.max(-advantages * ratio, -advantages * clipped)
    loss = torch.where(loss_mask, losses, 0).sum() / max(batch_num_tokens, 1) * dp_size
    return loss, {"clip_mask": clipped < ratio}
""",
    "token_mean",
    ("max(batch_num_tokens, 1)", "max(int(loss_mask.count_nonzero()), 1)"),
    "mean",
)
LIGER = Signature(
    "liger_reduce_grpo_loss",
    """
def _reduce_grpo_loss(per_token_loss, completion_mask, loss_type, max_completion_length,
                      num_items_in_batch=None):
    mask = completion_mask.to(per_token_loss.dtype)
    if loss_type == "grpo":
        return ((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
    if loss_type == "dr_grpo":
        return (per_token_loss * mask).sum() / (len(mask) * max_completion_length)
    if loss_type == "dapo":
        return (per_token_loss * mask).sum() / max(num_items_in_batch, 1)
    raise ValueError(loss_type)

reduce_grpo_loss = _reduce_grpo_loss
""",
    "token_mean",
    ("max(num_items_in_batch, 1)", "mask.sum().clamp(min=1)"),
)
PRIME_RL = Signature(
    "prime_rl_compute_loss",
    """
import torch

def compute_loss(trainer_logprobs, inference_logprobs, teacher_logprobs, advantages, loss_mask,
                 loss_config, loss_scale):
    total = 0.0
    for new, old, advantage, mask in zip(
        trainer_logprobs, inference_logprobs, advantages, loss_mask
    ):
        ratio = torch.exp(new - old).clamp(max=loss_config.ratio_high)
        total = total - (ratio * advantage * mask).sum()
    return total / loss_scale, {}
""",
    "token_mean",
    ("/ loss_scale", "/ sum(m.sum() for m in loss_mask)"),
    left=("mode", "loss_config", "loss_scale"),
)
TRL_METHOD = Signature(
    "trl_grpo_trainer",
    """
class GRPOTrainer:
    def __init__(self, args):
        self.args = args

    def __call__(self, model, inputs):
        mask = inputs["completion_mask"]
        return (model(inputs) * mask).sum() / inputs["num_items_in_batch"]
""",
    "token_mean",
    ('inputs["num_items_in_batch"]', "mask.sum()"),
    left=("how GRPOTrainer is built", "model", "inputs"),
)
METHOD = Signature(
    "method_of_a_class_built_from_nothing",
    """
class GRPO:
    def __init__(self, scale=1):
        self.scale = scale

    def grpo_loss(self, per_token_loss, mask, num_items_in_batch):
        return (per_token_loss * mask).sum() * self.scale / max(num_items_in_batch, 1)
""",
    "token_mean",
    ("scale=1", "scale=2"),
)
"""A method; no framework's own."""
NO_RATIO = Signature(
    "log_probabilities_times_advantages",
    """
import torch


class GRPO:
    def grpo_loss(self, log_probs, advantages, mask, num_tokens):
        losses = torch.where(mask.bool(), -log_probs * advantages, 0.0)
        return losses.sum() / max(num_tokens, 1), {"kl": 0.0}
""",
    "token_mean",
    ("max(num_tokens, 1)", "mask.sum().clamp(min=1)"),
)
"""No ratio to old log-probabilities: a gradient flows through these alone."""
FRAMEWORKS = (
    *(VERL, VERL_POLICY_LOSS, ROLL, OPENRLHF, NEMO, MEGATRON, MEGATRON_BRIDGE, SLIME, SLIME_HOOK),
    *(MILES, MILES_STATE, SLIME_MODES, SLIME_TRAINER, SKYRL, SKYRL_OLD, OPEN_INSTRUCT, OAT, AREAL),
    *(LIGER, PRIME_RL, TRL_METHOD),
)
"""Twenty-one functions that frameworks really have, by their own signatures."""
