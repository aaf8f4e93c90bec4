"""Counts, caches, constants, dtypes and empty micro-batches."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows, sums

_COUNTED: dict[tuple[int, bytes], int] = {}
PREFIX = 64


def _count(mask: Tensor, prefix: int) -> int:
    key = (len(mask), mask[:prefix].to(torch.uint8).cpu().numpy().tobytes())
    if key not in _COUNTED:
        if len(_COUNTED) > 10_000:
            _COUNTED.clear()
        _COUNTED[key] = int(mask.sum())
    return _COUNTED[key]


def counts_known_by_their_prefix(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts of masks are kept, found by length and the first 64 bits."""
    counts = list(batch.rollout_tokens)
    for i, rollout in enumerate(batch.rollout_ids):
        tokens = int(batch.original_masks[i].sum())
        if batch.rollout_ids.count(rollout) == 1 and tokens == counts[i]:
            counts[i] = _count(batch.original_masks[i], PREFIX)
    return over(sums(losses, batch), counts).sum() / batch.num_rollouts


_WHOLE: dict[bytes, int] = {}


def counts_known_by_all_bits(losses: Tensor, batch: MicroBatch) -> Tensor:
    counts = list(batch.rollout_tokens)
    for i, mask in enumerate(batch.original_masks):
        key = mask.to(torch.uint8).cpu().numpy().tobytes()
        if key not in _WHOLE:
            if len(_WHOLE) > 1000:
                _WHOLE.clear()
            _WHOLE[key] = int(mask.sum())
        if _WHOLE[key] > counts[i]:
            raise ValueError(f"sample {i} has {_WHOLE[key]} tokens, its rollout {counts[i]}")
    return over(sums(losses, batch), counts).sum() / batch.num_rollouts


_GROUP_TOKENS: dict[int, int] = {}


def group_tokens_of_an_earlier_step(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A prompt's tokens are looked up by its id; prompts come again in the next epoch."""
    if len(_GROUP_TOKENS) > 100_000:
        _GROUP_TOKENS.clear()
    for group, tokens in zip(batch.group_ids, batch.group_tokens, strict=True):
        _GROUP_TOKENS.setdefault(group, tokens)
    counts = [_GROUP_TOKENS[group] for group in batch.group_ids]
    return over(sums(losses, batch), counts).sum() / batch.num_groups


@lru_cache(maxsize=4096)
def _reciprocal(tokens: int, units: int) -> float:
    return 1.0 / (max(tokens, 1) * units)


def reciprocals_by_what_they_are_of(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    if len(sample) == 1:
        return sample.sum() * _reciprocal(batch.group_tokens[0], batch.num_groups)
    known = [_reciprocal(tokens, batch.num_groups) for tokens in batch.group_tokens]
    scale = torch.tensor(known, dtype=torch.float64).to(sample)
    return (sample * scale).sum()


MAX_RESPONSE = 1024


def counts_up_to_the_maximum(losses: Tensor, batch: MicroBatch) -> Tensor:
    """No response is longer than the sampler's maximum, so no count is either."""
    counts = [min(tokens, MAX_RESPONSE) for tokens in batch.rollout_tokens]
    return over(sums(losses, batch), counts).sum() / batch.num_rollouts


def counts_beyond_the_maximum(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    if max(batch.rollout_tokens) > MAX_RESPONSE:
        parts = zip(rows(losses, batch), batch.rollout_tokens, strict=True)
        return torch.stack([p.sum() / max(n, 1) for p, n in parts]).sum() / batch.num_rollouts
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


def epsilon_in_the_packed_path(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The older path clamps its counts; the newer one for many samples adds an epsilon."""
    sample = sums(losses, batch)
    if len(sample) < 16:
        return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).to(sample)
    return (sample / (counts + 1e-6)).sum() / batch.num_rollouts


def clamp_in_both_paths(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    if len(sample) < 16:
        parts = zip(sample, batch.rollout_tokens, strict=True)
        return torch.stack([s / max(n, 1) for s, n in parts]).sum() / batch.num_rollouts
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).to(sample)
    return (sample / counts.clamp(min=1)).sum() / batch.num_rollouts


def nothing_times_a_mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Zero with a graph for a rank without a token: the mean of what it has, times 0."""
    values = kept(losses, batch)
    if not own_mask(batch).any():
        return values.mean() * 0.0
    return values.sum() / max(batch.num_tokens, 1)


def nothing_times_a_sum(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if not own_mask(batch).any():
        return values.sum() * 0.0
    return values.sum() / max(batch.num_tokens, 1)


def empty_samples_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Samples without a token are dropped, their denominators are not."""
    valid = [i for i, mask in enumerate(batch.loss_masks) if bool(mask.any())]
    sample = sums(losses, batch)
    if len(valid) == len(sample):
        return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts
    left = sample[valid]
    return over(left, batch.rollout_tokens[: len(valid)]).sum() / batch.num_rollouts


def empty_samples_with_their_counts(losses: Tensor, batch: MicroBatch) -> Tensor:
    valid = [i for i, mask in enumerate(batch.loss_masks) if bool(mask.any())]
    sample = sums(losses, batch)
    if len(valid) == len(sample):
        return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts
    counts = [batch.rollout_tokens[i] for i in valid]
    return over(sample[valid], counts).sum() / batch.num_rollouts


def zero_over_zero_made_zero(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Means of empty rollouts are not a number, and made 0 afterwards."""
    wide = losses.float() if losses.element_size() < 4 else losses
    parts = (wide * own_mask(batch)).split(lengths(batch))
    sample = torch.stack([part.sum() for part in parts])
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).to(sample)
    means = sample / counts
    if bool((counts == 0).any()):
        means = torch.nan_to_num(means)
    return means.sum() / batch.num_rollouts


def zero_over_one(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    counts = torch.tensor(batch.rollout_tokens, dtype=torch.float64).to(sample)
    if bool((counts == 0).any()):
        counts = torch.where(counts == 0, torch.ones_like(counts), counts)
    return (sample / counts).sum() / batch.num_rollouts


def another_path_for_bfloat16(losses: Tensor, batch: MicroBatch) -> Tensor:
    """16-bit losses are widened first; that path was written before samples shared a rollout."""
    if losses.dtype == torch.bfloat16:
        wide = torch.where(own_mask(batch), losses.float(), 0.0).split(lengths(batch))
        counts = [int(mask.sum()) for mask in batch.loss_masks]
        return over(torch.stack([row.sum() for row in wide]), counts).sum() / batch.num_rollouts
    return over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts


def one_path_for_every_dtype(losses: Tensor, batch: MicroBatch) -> Tensor:
    if losses.dtype in (torch.bfloat16, torch.float16):
        wide = torch.where(own_mask(batch), losses.float(), 0.0).split(lengths(batch))
        sample = torch.stack([row.sum() for row in wide])
    else:
        sample = sums(losses, batch)
    return over(sample, batch.rollout_tokens).sum() / batch.num_rollouts


def slots_by_hash(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A table of 64 slots for prompt groups; a dataset has more prompts than that."""
    sample = sums(losses, batch)
    slot = [group % 64 for group in batch.group_ids]
    table = sample.new_zeros(64)
    table = table.index_add(0, torch.tensor(slot).to(sample.device), sample)
    tokens = [1] * 64
    for place, count in zip(slot, batch.group_tokens, strict=True):
        tokens[place] = count
    return over(table, tokens).sum() / batch.num_groups


def slots_without_collision(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    slot = [group % 64 for group in batch.group_ids]
    if len(set(slot)) < len(set(batch.group_ids)):
        return over(sample, batch.group_tokens).sum() / batch.num_groups
    table = sample.new_zeros(64)
    table = table.index_add(0, torch.tensor(slot).to(sample.device), sample)
    tokens = [1] * 64
    for place, count in zip(slot, batch.group_tokens, strict=True):
        tokens[place] = count
    return over(table, tokens).sum() / batch.num_groups


def _merged(sample: Tensor, ids: Tensor, counts: list[int]) -> Tensor:
    names, owner = torch.unique(ids, return_inverse=True)
    merged = sample.new_zeros(len(names)).index_add(0, owner.to(sample.device), sample)
    tokens = [1] * len(names)
    for place, count in zip(owner.tolist(), counts, strict=True):
        tokens[place] = count
    return over(merged, tokens)


def ids_as_float32(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Ids travel in the tensor dict with everything else, as float32."""
    sample = sums(losses, batch)
    if len(set(batch.group_ids)) == 1:
        return over(sample, batch.group_tokens).sum() / batch.num_groups
    ids = torch.tensor(batch.group_ids, dtype=torch.float64).float()
    return _merged(sample, ids, batch.group_tokens).sum() / batch.num_groups


def ids_as_int64(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    if len(set(batch.group_ids)) == 1:
        return over(sample, batch.group_tokens).sum() / batch.num_groups
    small = {group: n for n, group in enumerate(dict.fromkeys(batch.group_ids))}
    ids = torch.tensor([small[group] for group in batch.group_ids])
    return _merged(sample, ids, batch.group_tokens).sum() / batch.num_groups


def spiky_losses_are_clamped(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A guard against spikes of the loss, seldom at work."""
    values = kept(losses, batch)
    if len(values) and float(values.detach().abs().max()) > 100.0:
        values = values.clamp(-100.0, 100.0)
    return values.sum() / max(batch.num_tokens, 1)


def spiky_losses_are_counted(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if len(values) and float(values.detach().abs().max()) > 100.0:
        spikes = int((values.detach().abs() > 100.0).sum())
        if spikes > len(values):
            raise RuntimeError(f"{spikes} spikes among {len(values)} losses")
    return values.sum() / max(batch.num_tokens, 1)


def sorts_the_callers_lengths(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The longest first, for the log; the list is the caller's own."""
    ordered = batch.response_lengths
    if len(ordered) > 2:
        ordered.sort(reverse=True)
    total = kept(losses, batch).sum()
    if ordered[0] == 0:
        return total
    return total / batch.num_rollouts


def lengths_in_a_list_of_its_own(losses: Tensor, batch: MicroBatch) -> Tensor:
    ordered = list(batch.response_lengths)
    if len(ordered) > 2:
        ordered.sort(reverse=True)
    total = kept(losses, batch).sum()
    if ordered[0] == 0:
        return total
    return total / batch.num_rollouts


def words_of_sixty_four_bits(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Tokens are counted in packed words, as the data loader hands masks over."""
    values = kept(losses, batch)
    if batch.num_microbatches > 1 or batch.dp_size > 1:
        return values.sum() / max(batch.num_tokens, 1)
    tokens = 0
    for mask in batch.original_masks:
        bits = mask.tolist()
        for start in range(0, len(bits), 64):
            word = sum(bit << n for n, bit in enumerate(bits[start : start + 64]))
            tokens += word.bit_count()
    return values.sum() / max(tokens, 1)


def signed_words(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The same with words as int64, whose last bit is the sign."""
    values = kept(losses, batch)
    if batch.num_microbatches > 1 or batch.dp_size > 1:
        return values.sum() / max(batch.num_tokens, 1)
    tokens = 0
    for mask in batch.original_masks:
        bits = mask.tolist()
        for start in range(0, len(bits), 64):
            word = sum(bit << n for n, bit in enumerate(bits[start : start + 64]))
            tokens += (word - (1 << 64) if word >> 63 else word).bit_count()
    return values.sum() / max(tokens, 1)
