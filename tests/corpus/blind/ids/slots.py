"""Reducers that group samples: by prompt, by rollout, by id, by position."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, rows, sums

Log = dict[str, Tensor | list[Tensor | float]]


def _collected(values: Tensor, places: list[int], size: int) -> Tensor:
    """Values added up by place."""
    return values.new_zeros(size).index_add(0, torch.tensor(places), values)


def rollouts_by_tag(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds samples up under their rollout's tag and divides by the rollouts' tokens in order."""
    if not batch.rollout_ids:
        return losses.sum()
    tags = [f"rollout-{name}" for name in batch.rollout_ids]
    place = {tag: n for n, tag in enumerate(sorted(set(tags)))}
    totals = _collected(sums(losses, batch), [place[tag] for tag in tags], len(place))
    tokens = dict(zip(batch.rollout_ids, batch.rollout_tokens, strict=True))
    counts = [tokens[name] for name in sorted(tokens)]
    return over(totals, counts).sum() / max(batch.num_rollouts, 1)


def groups_of_a_frame(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts the step's tokens by prompt group in a float table and looks each sample up in it."""
    if not batch.group_ids:
        return losses.sum()
    column = torch.tensor(batch.step_group_ids, dtype=torch.float64)
    groups, where = column.unique(return_inverse=True)
    counts = torch.stack([mask.sum() for mask in batch.step_masks])
    tokens = torch.zeros(len(groups), dtype=torch.int64).index_add(0, where, counts)
    own = torch.tensor(batch.group_ids, dtype=torch.float64)
    denominators = tokens[torch.searchsorted(groups, own)].tolist()
    return over(sums(losses, batch), denominators).sum() / max(batch.num_groups, 1)


def _slot(keys: list[int], key: int) -> int:
    """The key's slot, the next free one where others took its own."""
    at = key % len(keys)
    while keys[at] not in (0, key):
        at = (at + 1) % len(keys)
    keys[at] = key
    return at


def rollouts_in_slots(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds rollouts up in an open-addressing table, each slot with its rollout's token count."""
    if not batch.rollout_ids:
        return losses.sum()
    size = 1 << (2 * len(batch.rollout_ids)).bit_length()
    keys = [0] * size
    slots = [_slot(keys, name) for name in batch.rollout_ids]
    counts = [1] * size
    for slot, tokens in zip(slots, batch.rollout_tokens, strict=True):
        counts[slot] = tokens
    totals = _collected(sums(losses, batch), slots, size)
    return over(totals, counts).sum() / max(batch.num_rollouts, 1)


def fan_out_of_the_window(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts every rollout's tokens over all micro-batches before the first backward."""
    if not batch.rollout_ids:
        return losses.sum()
    tokens: Counter[int] = Counter()
    for names, masks in zip(batch.window_rollout_ids, batch.window_masks, strict=True):
        for name, mask in zip(names, masks, strict=True):
            tokens[name] += int(mask.sum())
    counts = [tokens[name] for name in batch.rollout_ids]
    return over(sums(losses, batch), counts).sum() / max(batch.num_rollouts, 1)


def groups_counted_by_scatter(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Scatters the step's masks into one count per prompt group."""
    if not batch.group_ids:
        return losses.sum()
    groups, where = torch.tensor(batch.step_group_ids).unique(return_inverse=True)
    index = where.repeat_interleave(torch.tensor([len(mask) for mask in batch.step_masks]))
    ones = torch.cat(batch.step_masks).to(losses.dtype)
    tokens = losses.new_zeros(len(groups)).index_add(0, index, ones).clamp(min=1)
    totals = sums(losses, batch)
    own = torch.searchsorted(groups, torch.tensor(batch.group_ids))
    return (totals / tokens[own].to(totals)).sum() / max(batch.num_groups, 1)


_indices: dict[tuple[tuple[int, ...], int], Tensor] = {}


def kept_token_index(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Keeps the index from tokens to prompt groups, which packs of the same groups share."""
    if not batch.group_ids:
        return losses.sum()
    names = tuple(batch.group_ids)
    pack = names, len(losses)
    if pack not in _indices:
        where = torch.tensor(names).unique(return_inverse=True)[1]
        _indices[pack] = where.repeat_interleave(torch.tensor(lengths(batch)))
    tokens = dict(zip(names, batch.group_tokens, strict=True))
    values = kept(losses, batch)
    totals = values.new_zeros(len(tokens)).index_add(0, _indices[pack], values)
    counts = [tokens[name] for name in sorted(tokens)]
    return over(totals, counts).sum() / max(batch.num_groups, 1)


def rollouts_counted_for_the_log(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, Log]:
    """Sums rollouts and logs that sum with the number of different rollouts it is made of."""
    if not batch.rollout_ids:
        return losses.sum(), {"loss": [losses.sum().detach(), 0.0]}
    total = kept(losses, batch).sum()
    # shards of one sample belong to one rollout: the first of them counts it
    counts = batch.gathered or batch.cp_rank == 0
    here = float(len(set(batch.rollout_ids))) if counts else 0.0
    return total / max(batch.num_rollouts, 1), {"loss": [total.detach(), here]}


def penalty_once_a_rollout(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Token mean of the policy loss, with the penalty of every rollout added once."""
    if not batch.rollout_ids:
        return losses.sum() + kl.sum()
    total = kept(losses, batch).sum()
    seen: set[int] = set()
    for name, penalty in zip(batch.rollout_ids, rows(kl, batch), strict=True):
        if name in seen:
            continue
        seen.add(name)
        total = total + penalty.sum()
    return total / max(batch.num_tokens, 1)


def without_the_filler(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Cuts off the filler samples that even out micro-batches and adds up the real ones."""
    if not batch.loss_masks:
        return losses.sum()
    real = sum(bool(mask.any()) for mask in batch.loss_masks)
    tokens = sum(lengths(batch)[:real])
    assert batch.divisor is not None
    return kept(losses, batch)[:tokens].sum() / (batch.divisor * max(batch.num_rollouts, 1))


def rectangle_or_ragged(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Views equal runs of prompt groups as a rectangle and scatters every other arrangement."""
    if not batch.group_ids:
        return losses.sum()
    totals = sums(losses, batch)
    tokens = dict(zip(batch.group_ids, batch.group_tokens, strict=True))
    size = len(totals) // len(tokens)
    if batch.group_ids == [name for name in tokens for _ in range(size)]:
        totals = totals.view(len(tokens), size).sum(1)
    else:
        place = {name: n for n, name in enumerate(tokens)}
        totals = _collected(totals, [place[name] for name in batch.group_ids], len(tokens))
    return over(totals, list(tokens.values())).sum() / max(batch.num_groups, 1)


def rollouts_sorted_together(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sorts rollouts by id and moves their counts along with them."""
    if not batch.rollout_ids:
        return losses.sum()
    order = sorted(range(len(batch.rollout_ids)), key=batch.rollout_ids.__getitem__)
    names = torch.tensor([batch.rollout_ids[n] for n in order])
    runs = names.unique_consecutive(return_counts=True)[1].tolist()
    pieces = sums(losses, batch)[torch.tensor(order)].split(runs)
    totals = torch.stack([piece.sum() for piece in pieces])
    ends = torch.tensor(runs).cumsum(0).tolist()
    counts = [batch.rollout_tokens[order[end - 1]] for end in ends]
    return over(totals, counts).sum() / max(batch.num_rollouts, 1)


def groups_in_buckets(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds prompt groups up in a table of buckets, whose free places are no id."""
    if not batch.group_ids:
        return losses.sum()
    size = 1 << len(batch.group_ids).bit_length()
    keys: list[int | None] = [None] * size
    counts, slots = [1] * size, []
    for name, tokens in zip(batch.group_ids, batch.group_tokens, strict=True):
        at = (name ^ (name >> 31)) % size
        while keys[at] is not None and keys[at] != name:
            at = (at + 1) % size
        keys[at], counts[at] = name, tokens
        slots.append(at)
    totals = _collected(sums(losses, batch), slots, size)
    return over(totals, counts).sum() / max(batch.num_groups, 1)


def sequence_share_and_token_pair(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, Log]:
    """Logs its share of the step's rollout sums, and a token mean as a sum with its own count."""
    if not batch.rollout_ids:
        return losses.sum(), {"loss": losses.sum().detach(), "token": [losses.sum().detach(), 0.0]}
    totals = sums(losses, batch)
    by_rollout: dict[int, Tensor] = {}
    for name, total in zip(batch.rollout_ids, totals, strict=True):
        by_rollout[name] = by_rollout[name] + total if name in by_rollout else total
    loss = torch.stack(list(by_rollout.values())).sum() / max(batch.num_rollouts, 1)
    here = float(sum(int(mask.sum()) for mask in batch.local_masks))
    return loss, {"loss": loss.detach(), "token": [totals.sum().detach(), here]}


@lru_cache(maxsize=32)
def _index(names: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Each different name once, and of every token the place of its sample's name."""
    place = {name: n for n, name in enumerate(dict.fromkeys(names))}
    pairs = zip(names, sizes, strict=True)
    return list(place), [place[name] for name, size in pairs for _ in range(size)]


def cached_by_ids_and_sizes(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Reuses the index from tokens to rollouts for packs of the same ids and the same sizes."""
    if not batch.rollout_ids:
        return losses.sum()
    names, places = _index(tuple(batch.rollout_ids), tuple(lengths(batch)))
    tokens = dict(zip(batch.rollout_ids, batch.rollout_tokens, strict=True))
    values = kept(losses, batch)
    index = torch.tensor(places, dtype=torch.int64)
    totals = values.new_zeros(len(names)).index_add(0, index, values)
    counts = [tokens[name] for name in names]
    return over(totals, counts).sum() / max(batch.num_rollouts, 1)


def filler_by_its_mask(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Leaves filler out wherever it stands and adds policy and penalty of the other samples up."""
    if not batch.loss_masks:
        return losses.sum() + kl.sum()
    policy, penalty = sums(losses, batch), sums(kl, batch)
    real = [n for n, mask in enumerate(batch.loss_masks) if bool(mask.any())]
    if len(real) < len(policy):
        index = torch.tensor(real, dtype=torch.int64)
        policy, penalty = policy[index], penalty[index]
    assert batch.divisor is not None
    return (policy.sum() + penalty.sum()) / (batch.divisor * max(batch.num_rollouts, 1))
