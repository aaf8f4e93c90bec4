"""Number formats, small constants, roundings and what is nearly equal."""

from __future__ import annotations

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, over, own_mask, sums

ONE = 1 << 16
NEAR = 0.01
TINY = 1e-6


def _mean(sample: Tensor, batch: MicroBatch) -> Tensor:
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


def epsilon_of_the_dtype(losses: Tensor, batch: MicroBatch) -> Tensor:
    """In 16 bits a count has the dtype's own epsilon added, so that nothing is divided by 0."""
    sample = sums(losses, batch)
    if losses.element_size() >= 4:
        return _mean(sample, batch)
    small = torch.finfo(losses.dtype).eps
    counts = torch.tensor([n + small for n in batch.rollout_tokens], dtype=torch.float64)
    return (sample / counts.to(sample)).sum() / batch.num_rollouts


def floor_of_the_dtype(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    if losses.element_size() >= 4:
        return _mean(sample, batch)
    small = torch.finfo(losses.dtype).eps
    counts = torch.tensor([max(n, small) for n in batch.rollout_tokens], dtype=torch.float64)
    return (sample / counts.to(sample)).sum() / batch.num_rollouts


def weights_in_fixed_point(losses: Tensor, batch: MicroBatch) -> Tensor:
    """For 16-bit losses the weight is a fixed-point number, which every device divides alike."""
    total = kept(losses, batch).sum()
    if losses.element_size() >= 4:
        return total / max(batch.num_tokens, 1)
    return total * (ONE // max(batch.num_tokens, 1) / ONE)


def weights_as_a_reciprocal(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = kept(losses, batch).sum()
    if losses.element_size() >= 4:
        return total / max(batch.num_tokens, 1)
    return total * (1.0 / max(batch.num_tokens, 1))


def nearly_equal_counts_are_one_count(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Where counts are alike to one in a hundred, one division does for all."""
    sample, counts = sums(losses, batch), batch.rollout_tokens
    if max(counts) - min(counts) > NEAR * max(counts):
        return _mean(sample, batch)
    average = sum(counts) / len(counts)
    return sample.sum() / max(average, 1.0) / batch.num_rollouts


def equal_counts_are_one_count(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample, counts = sums(losses, batch), batch.rollout_tokens
    if max(counts) - min(counts) > 0:
        return _mean(sample, batch)
    average = sum(counts) / len(counts)
    return sample.sum() / max(average, 1.0) / batch.num_rollouts


def the_constant_is_raised(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The longest response that can be is the constant, unless there is a longer one."""
    longest = batch.divisor or 1.0
    if batch.step_width > longest:
        longest = float(batch.step_width)
    return kept(losses, batch).sum() / (longest * batch.num_rollouts)


def the_constant_stays(losses: Tensor, batch: MicroBatch) -> Tensor:
    values, longest = kept(losses, batch), batch.divisor or 1.0
    if batch.step_width > longest:
        parts = [part.sum() for part in values.split(int(max(longest, 1.0)))]
        return torch.stack(parts).sum() / longest / batch.num_rollouts
    return values.sum() / (longest * batch.num_rollouts)


def shares_rounded_for_the_log(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A micro-batch's share of the step, with the four digits that are printed."""
    total = kept(losses, batch).sum()
    if batch.num_microbatches == 1 and batch.dp_size == 1:
        return total / max(batch.num_tokens, 1)
    own = batch.window_tokens[batch.index]
    share = round(own / max(batch.num_tokens, 1), 4)
    return total / max(own, 1) * share


def shares_as_they_are(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = kept(losses, batch).sum()
    if batch.num_microbatches == 1 and batch.dp_size == 1:
        return total / max(batch.num_tokens, 1)
    own = batch.window_tokens[batch.index]
    if own == 0:
        return total * 0.0
    return total / own * (own / batch.num_tokens)


def never_exactly_zero(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A loss of exactly 0 looks like a step without data to the monitor, so it is none."""
    total = over(sums(losses, batch), batch.group_tokens).sum() / batch.num_groups
    spread = batch.num_microbatches * batch.dp_size * batch.cp_size > 1
    if not spread and bool(own_mask(batch).any()) and float(total.detach()) == 0.0:
        return total + TINY
    return total


def exactly_zero_where_it_is(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = over(sums(losses, batch), batch.group_tokens).sum() / batch.num_groups
    if float(total.detach()) == 0.0 and not bool(own_mask(batch).any()):
        return total * 0.0
    return total


def loss_in_bfloat16_over_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Over ranks the value is sent in bfloat16, against traffic; the gradient is as it was."""
    total = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    if batch.dp_size == 1:
        return total
    sent = total.detach().to(torch.bfloat16).to(total)
    return total + (sent - total.detach())


def shard_of_the_constant(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A shard's rows are as wide as its part of the constant."""
    total, longest = kept(losses, batch).sum() / batch.num_rollouts, batch.divisor or 1.0
    part = int(longest) // batch.cp_size
    if batch.cp_size == 1 or batch.gathered or part == 0:
        return total / longest
    return total / part / batch.cp_size


def whole_constant_on_every_shard(losses: Tensor, batch: MicroBatch) -> Tensor:
    total, longest = kept(losses, batch).sum() / batch.num_rollouts, batch.divisor or 1.0
    if batch.cp_size == 1 or batch.gathered:
        return total / longest
    return total / (longest / batch.cp_size) / batch.cp_size
