"""Signatures as frameworks have them, with a right body and a wrong one: what adapters are for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signature:
    """A file with one function. ``mode``: what it implements through its adapter; ``wrong``: a text
    in it and what makes it another mode. ``engine``: where it is right, "" where the adapter leaves
    that to the person."""

    name: str
    source: str
    mode: str
    wrong: tuple[str, str]
    engine: str = ""


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
