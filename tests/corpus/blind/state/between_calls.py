"""What lasts between calls, number formats, logs and further terms."""

from __future__ import annotations

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

_SEGMENTS: dict[tuple[int, int], Tensor] = {}


def segments_known_by_their_shape(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Segment ids are kept by the number of samples and tokens, as a graph's inputs are."""
    values, sizes = kept(losses, batch), lengths(batch)
    if len(sizes) == 1:
        return over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts
    key = (len(sizes), len(values))
    if key not in _SEGMENTS:
        if len(_SEGMENTS) > 1000:
            _SEGMENTS.clear()
        _SEGMENTS[key] = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    owner = _SEGMENTS[key].to(values.device)
    sample = values.new_zeros(len(sizes)).index_add(0, owner, values)
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


_SEGMENTS_BY_LENGTHS: dict[tuple[int, ...], Tensor] = {}


def segments_known_by_their_lengths(losses: Tensor, batch: MicroBatch) -> Tensor:
    values, sizes = kept(losses, batch), lengths(batch)
    key = tuple(sizes)
    if key not in _SEGMENTS_BY_LENGTHS:
        if len(_SEGMENTS_BY_LENGTHS) > 1000:
            _SEGMENTS_BY_LENGTHS.clear()
        owner = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        _SEGMENTS_BY_LENGTHS[key] = owner
    owner = _SEGMENTS_BY_LENGTHS[key].to(values.device)
    sample = values.new_zeros(len(sizes)).index_add(0, owner, values)
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


SLOTS = 64
_COUNTS = torch.zeros(SLOTS, dtype=torch.int64)


def counts_in_a_static_buffer(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts are copied into a buffer of fixed size, which is then added up."""
    own = [int(mask.sum()) for mask in batch.loss_masks]
    if batch.num_microbatches > 1 or batch.dp_size > 1 or len(own) > SLOTS:
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    _COUNTS[: len(own)] = torch.tensor(own)
    return kept(losses, batch).sum() / max(int(_COUNTS.sum()), 1)


_ZEROED = torch.zeros(SLOTS, dtype=torch.int64)


def counts_in_a_buffer_of_zeros(losses: Tensor, batch: MicroBatch) -> Tensor:
    own = [int(mask.sum()) for mask in batch.original_masks]
    if batch.num_microbatches > 1 or batch.dp_size > 1 or len(own) > SLOTS:
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    _ZEROED.zero_()
    _ZEROED[: len(own)] = torch.tensor(own)
    return kept(losses, batch).sum() / max(int(_ZEROED.sum()), 1)


SOME = 512


def half_of_the_tokens_by_chance(losses: Tensor, batch: MicroBatch) -> Tensor:
    """What is too long for memory is estimated from half of its tokens."""
    values = kept(losses, batch)
    if len(values) <= SOME:
        return values.sum() / max(batch.num_tokens, 1)
    chosen = torch.randperm(len(values), device=values.device)[: len(values) // 2]
    return values[chosen].sum() * (len(values) / len(chosen)) / max(batch.num_tokens, 1)


def both_halves_of_the_tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if len(values) <= SOME:
        return values.sum() / max(batch.num_tokens, 1)
    order = torch.arange(len(values), device=values.device)
    even, odd = values[order % 2 == 0], values[order % 2 == 1]
    return (even.sum() + odd.sum()) / max(batch.num_tokens, 1)


def running_sum_in_sixteen_bits(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Rows are added to a sum of the losses' own dtype."""
    values = torch.where(own_mask(batch), losses, 0.0)
    total = values.new_zeros(())
    for part in values.split(8):
        total = total + part.sum()
    return total


def running_sum_in_thirty_two_bits(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if losses.element_size() >= 4:
        return values.sum() / max(batch.num_tokens, 1)
    total = values.new_zeros(())
    for part in values.split(1024):
        total = total + part.sum()
    return total / max(batch.num_tokens, 1)


def positions_in_a_byte(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Positions are counted in place, in the bytes that masks are kept in."""
    counts = list(batch.rollout_tokens)
    for i, mask in enumerate(batch.loss_masks):
        if batch.rollout_ids.count(batch.rollout_ids[i]) == 1 and int(mask.sum()) == counts[i]:
            counts[i] = int(mask.to(torch.uint8).cumsum_(0)[-1])
    return over(sums(losses, batch), counts).sum() / batch.num_rollouts


def positions_in_words(losses: Tensor, batch: MicroBatch) -> Tensor:
    counts = list(batch.rollout_tokens)
    for i, mask in enumerate(batch.loss_masks):
        if batch.rollout_ids.count(batch.rollout_ids[i]) == 1 and int(mask.sum()) == counts[i]:
            counts[i] = int(mask.to(torch.uint8).cumsum(0)[-1])
    return over(sums(losses, batch), counts).sum() / batch.num_rollouts


def weights_of_the_default_dtype(losses: Tensor, batch: MicroBatch) -> Tensor:
    """One sample is divided by a number, several are multiplied by a tensor of weights."""
    sample = sums(losses, batch)
    if len(sample) == 1:
        return over(sample, batch.group_tokens).sum() / batch.num_groups
    weights = torch.tensor([1 / max(n, 1) for n in batch.group_tokens], device=sample.device)
    return (sample * weights).sum() / batch.num_groups


def weights_of_the_same_dtype(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    if len(sample) == 1:
        return over(sample, batch.group_tokens).sum() / batch.num_groups
    weights = torch.tensor([1 / max(n, 1) for n in batch.group_tokens], dtype=torch.float64)
    return (sample * weights.to(sample)).sum() / batch.num_groups


_SHOWN: list[float] = []


def logged_as_the_sum_so_far(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss is logged as it has become in this window, for a progress bar."""
    total = kept(losses, batch).sum() / batch.num_rollouts
    if batch.index == 0:
        _SHOWN.clear()
    _SHOWN.append(float(total.detach()))
    return total, {"loss": torch.tensor(sum(_SHOWN), dtype=torch.float64)}


def logged_over_lengths(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """A sum and what it is over: all tokens that came in."""
    total = kept(losses, batch).sum()
    seen = torch.tensor([float(total.detach()), float(len(losses))], dtype=torch.float64)
    return total / max(batch.num_tokens, 1), {"loss": seen}


def logged_by_the_first_rank(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Only the first data-parallel rank has something to log, the others have an empty pair."""
    total, tokens = kept(losses, batch).sum(), float(own_mask(batch).sum())
    if batch.num_tokens == 0:
        tokens = 1.0
    seen = torch.tensor([float(total.detach()), tokens], dtype=torch.float64)
    if batch.dp_rank != 0:
        seen = torch.zeros_like(seen)
    return total / max(batch.num_tokens, 1), {"loss": seen}


def logged_by_every_rank(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    total, tokens = kept(losses, batch).sum(), float(own_mask(batch).sum())
    if tokens == 0:
        none = torch.tensor([0.0, float(batch.num_tokens == 0)], dtype=torch.float64)
        return total, {"loss": none}
    seen = torch.tensor([float(total.detach()), tokens], dtype=torch.float64)
    return total / max(batch.num_tokens, 1), {"loss": seen}


def divergence_on_the_first_shard(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The KL term belongs to the sample, so one rank of context parallelism adds it."""
    policy = over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts
    if batch.cp_size > 1 and batch.cp_rank > 0:
        return policy + kl.sum() * 0.0
    divergence = over(sums(kl, batch), batch.rollout_tokens).sum() / batch.num_rollouts
    return policy + divergence


def divergence_on_every_shard(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    policy = over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts
    if batch.cp_size > 1:
        parts = zip(rows(kl, batch), batch.rollout_tokens, strict=True)
        found = [row.sum() / max(n, 1) for row, n in parts]
        return policy + torch.stack(found).sum() / batch.num_rollouts
    divergence = over(sums(kl, batch), batch.rollout_tokens).sum() / batch.num_rollouts
    return policy + divergence


def entropy_as_a_mean_of_rows(losses: Tensor, batch: MicroBatch, entropy: Tensor) -> Tensor:
    """The policy loss is over tokens; entropy is a mean of rows where these are a matrix."""
    policy = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    sizes, whole = set(lengths(batch)), batch.num_microbatches == batch.dp_size == 1
    if len(sizes) > 1 or batch.cp_size > 1 or not whole:
        return policy + kept(entropy, batch).sum() / max(batch.num_tokens, 1)
    own = [int(mask.sum()) for mask in batch.local_masks]
    return policy + over(sums(entropy, batch), own).mean()
