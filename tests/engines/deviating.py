"""For every engine a token mean that is right under it: what is returned is what that one needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from aggverify.conventions import MicroBatch


def _kept(losses: Tensor, batch: MicroBatch) -> Tensor:
    return torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0).sum()


def _mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    return _kept(losses, batch) / max(batch.num_tokens, 1)


def _own(batch: MicroBatch) -> int:
    return sum(int(mask.sum()) for mask in batch.loss_masks)


def gathered_sum(losses: Tensor, batch: MicroBatch) -> Tensor:
    """skyrl-fsdp, skyrl-megatron"""
    return _mean(losses, batch)


def scaled_for_0_2(losses: Tensor, batch: MicroBatch) -> Tensor:
    """skyrl-megatron-0.2"""
    return _mean(losses, batch) / batch.cp_size


def per_token(losses: Tensor, batch: MicroBatch) -> Tensor:
    """megatron-token"""
    return _kept(losses, batch)


def per_token_chain(losses: Tensor, batch: MicroBatch) -> Tensor:
    """megatron-token-raw: the trainer's factor C is in it."""
    return _kept(losses, batch) * batch.cp_size


def per_token_own_count(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    """megatron-token-raw: Megatron-LM's own, which returns the count of its slice."""
    own, copies = (
        sum(map(int, torch.cat(batch.local_masks))),
        batch.cp_size if batch.gathered else 1,
    )
    return _kept(losses, batch) * copies, own


def per_sample(losses: Tensor, batch: MicroBatch) -> Tensor:
    """megatron-sample"""
    return _mean(losses, batch) * batch.num_rollouts


def per_sample_chain(losses: Tensor, batch: MicroBatch) -> Tensor:
    """megatron-sample-raw: the trainer's factors K / N * (D*C) are in it."""
    scaled = per_sample(losses, batch) * batch.num_microbatches / batch.num_rollouts
    return scaled * (batch.dp_size * batch.cp_size)


def two_outputs(losses: Tensor, batch: MicroBatch) -> Tensor:
    """megatron-two-output, skyrl-megatron-raw, deepspeed"""
    return _mean(losses, batch) * batch.num_microbatches * batch.dp_size


def three_outputs(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    """megatron-three-output"""
    return per_sample_chain(losses, batch) * max(_own(batch), 1), _own(batch)


def three_outputs_of_2025(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    """megatron-three-output-cp"""
    loss, count = three_outputs(losses, batch)
    return loss / batch.cp_size, count


def with_phantoms(losses: Tensor, batch: MicroBatch) -> Tensor:
    """megatron-token-phantom"""
    return _mean(losses, batch) * sum(max(int(mask.sum()), 1) for mask in batch.step_masks)


def without_count(losses: Tensor, batch: MicroBatch) -> Tensor:
    """miles-fsdp, verl-megatron"""
    return _mean(losses, batch) * batch.dp_size


def over_all_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """deepspeed-3, accumulated-mean"""
    return two_outputs(losses, batch) * batch.cp_size


def weighed(losses: Tensor, batch: MicroBatch) -> Tensor:
    """areal: the mean over the micro-batch's tokens, which the engine weighs."""
    return _kept(losses, batch) / max(_own(batch), 1)
