"""An adapter's function whose weights are read off the gradient of one of its arguments.

It is a loss of log-probabilities with one advantage a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from aggverify.conventions.micro_batch import MicroBatch
from aggverify.conventions.policy_loss import PolicyBatch, policy_inputs

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceBatch(PolicyBatch):
    """A micro-batch with what a sequence was worth, and log-probabilities to compare with.

    These are in the form of those that are given.
    """

    advantages: Tensor
    """One a sample."""


def one_a_sequence(advantages: Any, mask: Any, lengths: Any) -> Any:
    """Of each sequence the advantage of its first unmasked token, -1 where it has none here."""
    import torch

    split = [x if x.dim() > 1 else x.split(lengths) for x in (advantages, mask)]
    end = advantages.new_full((1,), -1.0)
    return torch.stack([torch.cat([own[seen], end])[0] for own, seen in zip(*split, strict=True)])


def with_advantages(losses: Tensor, batch: MicroBatch, ratios: str) -> tuple[Tensor, SequenceBatch]:
    """Return the argument whose gradient is read, and the batch that goes with it."""
    mask = batch.mask.bool()
    given, old, rollout, ref, advantages = policy_inputs(losses, mask, ratios)
    found = SequenceBatch(
        **{f.name: getattr(batch, f.name) for f in fields(batch)},
        old_log_probs=old,
        rollout_log_probs=rollout,
        ref_log_probs=ref,
        advantages=one_a_sequence(advantages, mask, batch.cu_seqlens.diff().tolist()),
    )
    return given, found
