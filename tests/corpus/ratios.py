"""Policy losses that are right where all ratios are 1, and what they do where they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from aggverify.conventions.policy_loss import PolicyBatch
from tests.corpus.base import Correct, Mutant

if TYPE_CHECKING:
    from torch import Tensor


def _kept(batch: PolicyBatch) -> Tensor:
    return batch.mask.bool()


def _losses(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    log_ratio = torch.where(_kept(batch), log_probs - batch.old_log_probs, 0.0)
    return torch.where(_kept(batch), -advantages * log_ratio.exp(), 0.0)


def _to_rollout(batch: PolicyBatch) -> Tensor:
    return torch.where(_kept(batch), batch.old_log_probs - batch.rollout_log_probs, 0.0)


def truncated(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    weights = _to_rollout(batch).exp().clamp(max=2.0)
    return (weights * _losses(log_probs, advantages, batch)).sum() / max(batch.num_tokens, 1)


def masked_by_ratio(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    ratio = _to_rollout(batch).exp()
    inside = (ratio > 0.5) & (ratio < 2.0)
    losses = torch.where(inside, ratio, 0.0) * _losses(log_probs, advantages, batch)
    return losses.sum() / max(batch.num_tokens, 1)


def not_truncated(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    """Infinite where the ratio is."""
    weights = _to_rollout(batch).exp()
    return (weights * _losses(log_probs, advantages, batch)).sum() / max(batch.num_tokens, 1)


def _drift(batch: PolicyBatch, *, whole: bool) -> Tensor:
    """Of each token's sequence, the mean log-ratio."""
    lengths = [len(own) for own in batch.local_masks]
    sums = torch.stack([own.sum() for own in _to_rollout(batch).split(lengths)])
    counts = torch.tensor([int(own.sum()) for own in batch.local_masks])
    if whole and batch.cp_size > 1 and not batch.gathered:
        dist.all_reduce(sums, group=batch.cp_group)
        counts = torch.tensor([int(mask.sum()) for mask in batch.loss_masks])
    return (sums / counts.clamp(min=1)).repeat_interleave(torch.tensor(lengths))


def sequences_masked(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    inside = _drift(batch, whole=True).abs() < 0.5
    losses = torch.where(inside, _losses(log_probs, advantages, batch), 0.0)
    return losses.sum() / max(batch.num_tokens, 1)


def shards_masked(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    inside = _drift(batch, whole=False).abs() < 0.5
    losses = torch.where(inside, _losses(log_probs, advantages, batch), 0.0)
    return losses.sum() / max(batch.num_tokens, 1)


def normalised_here(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    """Weights divided by their mean over the micro-batch."""
    weights, kept = _to_rollout(batch).exp().clamp(max=5.0), _kept(batch)
    mean = torch.where(kept, weights, 0.0).sum() / kept.sum().clamp(min=1)
    losses = weights / mean.clamp(min=1e-6) * _losses(log_probs, advantages, batch)
    return losses.sum() / max(batch.num_tokens, 1)


def counted_inside(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    """A mean over tokens that a mask by ratio has left in this micro-batch."""
    inside = (_to_rollout(batch).abs() < 0.5) & _kept(batch)
    total = torch.where(inside, _losses(log_probs, advantages, batch), 0.0).sum()
    share = _kept(batch).sum() / max(batch.num_tokens, 1)
    return total / inside.sum().clamp(min=1) * share


def reference_mean_here(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    """A penalty of the KL to the reference, which is a mean over the micro-batch."""
    apart = torch.where(_kept(batch), batch.ref_log_probs - batch.old_log_probs, 0.0)
    kl = (apart.exp() - apart - 1).sum() / _kept(batch).sum().clamp(min=1)
    return (1 + kl) * _losses(log_probs, advantages, batch).sum() / max(batch.num_tokens, 1)


def overflowed_times_zero(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    ratio = _to_rollout(batch).exp()
    inside = ((ratio > 0.5) & (ratio < 2.0)).float()
    losses = ratio * inside * _losses(log_probs, advantages, batch)
    return losses.sum() / max(batch.num_tokens, 1)


def overflowed_behind_the_mask(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    weights = (batch.old_log_probs - batch.rollout_log_probs).exp()
    return (weights * _losses(log_probs, advantages, batch)).sum() / max(batch.num_tokens, 1)


def _penalised(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch, chosen: Tensor) -> Tensor:
    """With the size of the log-ratio on top where a token is chosen."""
    apart = torch.where(_kept(batch) & chosen, log_probs - batch.old_log_probs, 0.0).abs()
    return (_losses(log_probs, advantages, batch) + apart).sum() / max(batch.num_tokens, 1)


def penalised_by_rank_here(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    """Chosen: half of the tokens of a micro-batch, by log-probability."""
    found = log_probs.detach()[_kept(batch)]
    limit = found.median() if len(found) else 0.0
    return _penalised(log_probs, advantages, batch, log_probs.detach() >= limit)


def penalised_by_its_own(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    """Chosen by a limit that is the same everywhere."""
    return _penalised(log_probs, advantages, batch, _to_rollout(batch).abs() > 0.5)


def _with_penalty(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch, count: Any) -> Tensor:
    """A policy term over the step's tokens, and a k3 penalty over this count."""
    apart = torch.where(_kept(batch), batch.ref_log_probs - log_probs, 0.0)
    penalty = (apart.exp() - apart - 1).sum() / count
    return _losses(log_probs, advantages, batch).sum() / max(batch.num_tokens, 1) + 0.04 * penalty


def penalty_over_what_is_here(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    count = _kept(batch).sum().clamp(min=1) * batch.num_microbatches * batch.dp_size
    return _with_penalty(log_probs, advantages, batch, count)


def penalty_over_the_step(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    return _with_penalty(log_probs, advantages, batch, max(batch.num_tokens, 1))


def whitened_here(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    """Advantages less their mean over the micro-batch, over their deviation there."""
    kept = _kept(batch)
    count = kept.sum().clamp(min=1)
    apart = torch.where(kept, advantages - torch.where(kept, advantages, 0.0).sum() / count, 0.0)
    white = apart * torch.rsqrt((apart**2).sum() / count + 1e-8)
    return _losses(log_probs, white, batch).sum() / max(batch.num_tokens, 1)


def _drift_logged(
    log_probs: Tensor, advantages: Tensor, batch: PolicyBatch, drift: Tensor
) -> tuple[Tensor, dict[str, Any]]:
    loss = _losses(log_probs, advantages, batch).sum() / max(batch.num_tokens, 1)
    return loss, {"train_rollout_logprob_abs_diff": [drift.abs().sum(), _kept(batch).sum()]}


def drift_of_everything_logged(
    log_probs: Tensor, advantages: Tensor, batch: PolicyBatch
) -> tuple[Tensor, dict[str, Any]]:
    drift = batch.old_log_probs - batch.rollout_log_probs
    return _drift_logged(log_probs, advantages, batch, drift)


def drift_logged(
    log_probs: Tensor, advantages: Tensor, batch: PolicyBatch
) -> tuple[Tensor, dict[str, Any]]:
    return _drift_logged(log_probs, advantages, batch, _to_rollout(batch))


def _scores(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    """Minus the advantage times the log-probability: at ratio 1 its gradient is the ratio's."""
    return torch.where(_kept(batch), -advantages * torch.where(_kept(batch), log_probs, 0.0), 0.0)


def scored(log_probs: Tensor, advantages: Tensor, batch: PolicyBatch) -> Tensor:
    return _scores(log_probs, advantages, batch).sum() / max(batch.num_tokens, 1)


def scored_times_a_detached_ratio(
    log_probs: Tensor, advantages: Tensor, batch: PolicyBatch
) -> Tensor:
    apart = torch.where(_kept(batch), log_probs - batch.old_log_probs, 0.0)
    ratio = apart.exp().detach().clamp(max=5.0)
    return (ratio * _scores(log_probs, advantages, batch)).sum() / max(batch.num_tokens, 1)


_OF_PARTS = "ratios-of-what-is-at-hand"
_STATISTIC, _COUNTED = "statistic-over-the-rows-at-hand", "counted-where-it-stands"
MUTANTS = tuple(
    Mutant(name, 67, seen, mode, "sum", (code,), bug, "policy-loss")
    for name, code, bug, seen, mode in (
        ("shards_masked", "AGV215", _OF_PARTS, "seq-mask-tis under CP", "token_mean"),
        ("normalised_here", "AGV215", _OF_PARTS, "self-normalised IS", "token_mean"),
        ("counted_inside", "AGV215", _OF_PARTS, "IcePop", "token_mean"),
        ("reference_mean_here", "AGV215", _OF_PARTS, "KL to the reference", "token_mean"),
        ("penalised_by_rank_here", "AGV215", _OF_PARTS, "kl_cov", "token_mean"),
        ("overflowed_times_zero", "AGV216", "ratio-times-zero", "IcePop", "token_mean"),
        ("overflowed_behind_the_mask", "AGV216", "ratio-times-zero", "TIS", "token_mean"),
        ("penalty_over_what_is_here", "AGV202", _COUNTED, "KL of a micro-batch", "nonlinear"),
        ("whitened_here", "AGV202", _STATISTIC, "masked_whiten in a loss", "nonlinear"),
        ("drift_of_everything_logged", "AGV514", "masked-values-logged", "TRL #6803", "token_mean"),
    )
)
CORRECT = tuple(
    Correct(name, why, mode, "sum", "policy-loss")
    for name, why, mode in (
        ("penalty_over_the_step", "whose gradient is 0 at ratio 1", "nonlinear"),
        ("penalised_by_its_own", "a penalty on some tokens, chosen one by one", "token_mean"),
        ("truncated", "weights of 2 at most", "token_mean"),
        ("masked_by_ratio", "tokens are selected by their own ratio", "token_mean"),
        ("not_truncated", "infinite where a ratio is", "token_mean"),
        ("drift_logged", "of what is not masked", "token_mean"),
        ("scored", "REINFORCE: its value is no sum of the ratios", "token_mean"),
        ("scored_times_a_detached_ratio", "CISPO: nor is this one", "token_mean"),
        (
            "sequences_masked",
            "sequences are selected, reduced over context parallelism",
            "token_mean",
        ),
    )
)
