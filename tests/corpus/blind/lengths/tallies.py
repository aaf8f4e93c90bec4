"""What is counted: tokens, samples, what is not empty, and the counts of the step."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, over, sums

CAP = 512


def tokens_with_a_loss(losses: Tensor, batch: MicroBatch) -> Tensor:
    """With the whole step at hand, tokens are what is not zero behind the mask."""
    values, tokens = kept(losses, batch), batch.num_tokens
    if batch.num_microbatches == batch.dp_size == batch.cp_size == 1:
        tokens = int(torch.count_nonzero(values.detach()))
    return values.sum() / max(tokens, 1)


def tokens_of_an_even_shard(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The step's tokens are spread evenly over the shards, which each divide by their own."""
    own = max(batch.num_tokens // batch.cp_size, 1) if batch.num_tokens > batch.cp_size else 0
    tokens = own * batch.cp_size if own else batch.num_tokens
    return kept(losses, batch).sum() / max(tokens, 1)


def tokens_of_an_even_shard_and_the_rest(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The step's tokens by shards, with what is left over."""
    own, rest = divmod(batch.num_tokens, batch.cp_size)
    if own == 0:
        return kept(losses, batch).sum() / max(rest, 1)
    return kept(losses, batch).sum() / (own * batch.cp_size + rest)


def rollouts_of_full_batches(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Every rank has as many rollouts as the sampler deals to each."""
    each = -(-batch.num_rollouts // batch.dp_size)
    return kept(losses, batch).sum() / (float(batch.divisor or 1) * each * batch.dp_size)


def rollouts_less_what_fills_up(losses: Tensor, batch: MicroBatch) -> Tensor:
    """What the sampler deals, less the copies that it filled the last batch up with."""
    each = -(-batch.num_rollouts // batch.dp_size)
    added = each * batch.dp_size - batch.num_rollouts
    rollouts = each * batch.dp_size - added if added else batch.num_rollouts
    return kept(losses, batch).sum() / (float(batch.divisor or 1) * rollouts)


def lengths_of_the_step(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The step's rollouts by length, as the report has them: so many there are."""
    histogram = {n: n / max(batch.num_tokens, 1) for n in batch.step_rollout_tokens}
    return kept(losses, batch).sum() / len(histogram)


def lengths_of_the_step_with_their_number(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The step's rollouts by length, and how many of each there are."""
    histogram = Counter(batch.step_rollout_tokens)
    if len(histogram) == 1:
        return kept(losses, batch).sum() / batch.num_rollouts
    return kept(losses, batch).sum() / sum(histogram.values())


def no_length_above_the_cap(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A response weighs as many tokens as it has, up to the cap."""
    capped = torch.tensor([min(n, CAP) for n in batch.rollout_tokens], dtype=torch.float64)
    means = over(sums(losses, batch), batch.rollout_tokens)
    return (means * capped.to(means)).sum()


def lengths_above_the_cap_in_parts(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A response weighs its tokens below the cap, and those above it."""
    below = torch.tensor([min(n, CAP) for n in batch.rollout_tokens], dtype=torch.float64)
    above = torch.tensor([max(n - CAP, 0) for n in batch.rollout_tokens], dtype=torch.float64)
    means = over(sums(losses, batch), batch.rollout_tokens)
    return (means * (below + above).to(means)).sum()


def window_counts_of_at_least_one(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts of the window's micro-batches, none of which may be 0, are added up."""
    tokens = batch.num_tokens
    if batch.dp_size == 1 and batch.num_microbatches > 1:
        tokens = sum(max(n, 1) for n in batch.window_tokens)
    return kept(losses, batch).sum() / max(tokens, 1)
