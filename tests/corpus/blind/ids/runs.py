"""Prompt groups, rollouts of several samples, and the ids that tell them apart."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import rows


def _by_sample(losses: Tensor, batch: MicroBatch) -> list[Tensor]:
    return [row.sum() for row in rows(losses, batch)] if batch.local_masks else []


def _added(parts: list[Tensor], losses: Tensor) -> Tensor:
    return torch.stack(parts).sum() if parts else losses[:0].sum()


def _divided(losses: Tensor, batch: MicroBatch, counts: list[int]) -> Tensor:
    """The samples' sums, each over its count."""
    parts = zip(_by_sample(losses, batch), counts, strict=True)
    return _added([value / max(count, 1) for value, count in parts], losses)


def prompts_are_runs_of_the_step(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Each prompt's token mean, over the prompts that the generator put out one after another."""
    prompts = sum(1 for _ in groupby(batch.step_group_ids))
    return _divided(losses, batch, batch.group_tokens) / max(prompts, 1)


def rollout_means_by_id_column(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Samples of one rollout are joined by a column of ids that travels beside the losses."""
    column = torch.tensor(batch.rollout_ids, dtype=torch.int64).to(losses)
    if not len(column):
        return losses[:0].sum()
    names, place = column.unique(return_inverse=True)
    values = torch.stack(_by_sample(losses, batch))
    totals = values.new_zeros(len(names)).index_add(0, place, values)
    counts = torch.tensor(batch.rollout_tokens, device=losses.device)
    tokens = counts.new_ones(len(names)).scatter_reduce(0, place, counts, "amax")
    return (totals / tokens.to(totals)).sum() / max(batch.num_rollouts, 1)


def prompt_tokens_from_a_shared_table(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompt means with token counts that all ranks add up in one table, a place per prompt."""
    names = {f"prompt-{group}" for group in batch.step_group_ids}
    place = {name: i for i, name in enumerate(names)}
    table = torch.zeros(len(place), dtype=torch.int64, device=losses.device)
    for masks, groups in zip(batch.window_masks, batch.window_group_ids, strict=True):
        for mask, group in zip(masks, groups, strict=True):
            table[place[f"prompt-{group}"]] += int(mask.sum())
    if batch.dp_size > 1:
        dist.all_reduce(table, group=batch.dp_group)
    counts = [int(table[place[f"prompt-{group}"]]) for group in batch.group_ids]
    return _divided(losses, batch, counts) / max(batch.num_groups, 1)


_window: tuple[int, ...] = ()
_tokens: dict[int, int] = {}


def rollout_tokens_kept_for_the_window(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Rollout means; a rollout's tokens are looked up once a window, which its shape tells."""
    global _window  # noqa: PLW0603
    shape = (batch.num_rollouts, batch.num_samples, batch.num_microbatches)
    if shape != _window:
        _tokens.clear()
        _window = shape
    for rollout, count in zip(batch.rollout_ids, batch.rollout_tokens, strict=True):
        _tokens.setdefault(rollout, count)
    counts = [_tokens[rollout] for rollout in batch.rollout_ids]
    return _divided(losses, batch, counts) / max(batch.num_rollouts, 1)


def prompts_from_the_fullest_group(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompt means; the last prompt of a step may have fewer rollouts, so the number rounds up."""
    full = max(batch.group_rollouts, default=1)
    prompts = -(-batch.num_rollouts // max(full, 1))
    return _divided(losses, batch, batch.group_tokens) / max(prompts, 1)


def filler_copies_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Samples that were repeated to fill up the batch are added once."""
    seen: set[tuple[int, int, int]] = set()
    parts = []
    facts = zip(batch.rollout_ids, batch.total_lengths, batch.loss_masks, strict=True)
    for fact, value in zip(facts, _by_sample(losses, batch), strict=True):
        rollout, length, mask = fact
        key = (rollout, length, int(mask.sum()))
        if key not in seen:
            seen.add(key)
            parts.append(value)
    return _added(parts, losses) / ((batch.divisor or 1.0) * max(batch.num_rollouts, 1))


def logged_over_rollouts_seen(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, list[Tensor | int]]]:
    """The sum per rollout, logged as a sum and the rollouts that it was taken over."""
    total = _added(_by_sample(losses, batch), losses)
    # Shards of one sample are one rollout: the first of them counts it.
    counts = batch.gathered or batch.cp_rank == 0
    seen = len(set(batch.rollout_ids)) if counts else 0
    return total / max(batch.num_rollouts, 1), {"loss": [total.detach(), seen]}


def penalty_per_joined_rollout(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Rollout means of the policy loss and of the penalty, whose turns are joined by rollout."""
    joined: dict[int, int] = {}
    for rollout, mask in zip(batch.rollout_ids, batch.loss_masks, strict=True):
        joined[rollout] = joined.get(rollout, 0) + int(mask.sum())
    policy = _divided(losses, batch, batch.rollout_tokens)
    penalty = _divided(kl, batch, [joined[rollout] for rollout in batch.rollout_ids])
    return (policy + penalty) / max(batch.num_rollouts, 1)


def prompt_means_run_by_run(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Neighbours of one prompt are added up first, and each run is divided by its prompt's tokens.

    A prompt may come in several runs: every one has the whole prompt's count.
    """
    samples = zip(batch.group_ids, batch.group_tokens, _by_sample(losses, batch), strict=True)
    parts = []
    for (_, count), run in groupby(samples, key=lambda sample: sample[:2]):
        parts.append(torch.stack([value for *_, value in run]).sum() / max(count, 1))
    return _added(parts, losses) / max(batch.num_groups, 1)


@lru_cache(maxsize=4096)
def _share(tokens: int, rollouts: int) -> float:
    return 1.0 / (max(tokens, 1) * max(rollouts, 1))


def rollout_means_by_whole_ids(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Turns of one rollout are joined by their ids in 64-bit integers; shares are remembered."""
    if not batch.rollout_ids:
        return losses[:0].sum()
    ids = torch.tensor(batch.rollout_ids, dtype=torch.int64, device=losses.device)
    names, place = ids.unique(return_inverse=True)
    values = torch.stack(_by_sample(losses, batch))
    totals = values.new_zeros(len(names)).index_add(0, place, values)
    tokens = dict(zip(batch.rollout_ids, batch.rollout_tokens, strict=True))
    shares = [_share(tokens[name], batch.num_rollouts) for name in names.tolist()]
    return (totals * torch.tensor(shares, dtype=torch.float64).to(totals)).sum()


def prompt_tokens_from_a_sorted_table(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompt means with token counts that all ranks add up in one table, in order of the ids."""
    place = {group: i for i, group in enumerate(sorted(set(batch.step_group_ids)))}
    table = torch.zeros(len(place), dtype=torch.int64, device=losses.device)
    for masks, groups in zip(batch.window_masks, batch.window_group_ids, strict=True):
        for mask, group in zip(masks, groups, strict=True):
            table[place[group]] += int(mask.sum())
    if batch.dp_size > 1:
        dist.all_reduce(table, group=batch.dp_group)
    counts = [int(table[place[group]]) for group in batch.group_ids]
    return _divided(losses, batch, counts) / max(batch.num_groups, 1)


def rollout_sums_in_order_of_ids(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Samples are sorted by rollout, so that turns stand together, and rollouts are added up."""
    samples = list(zip(batch.rollout_ids, _by_sample(losses, batch), strict=True))
    samples.sort(key=lambda sample: sample[0])
    parts = []
    for _, turns in groupby(samples, key=lambda sample: sample[0]):
        parts.append(torch.stack([value for _, value in turns]).sum())
    return _added(parts, losses) / max(batch.num_rollouts, 1)


def masked_fillers_left_out(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Fully masked copies that fill up the batch are skipped, in the loss and in the penalty."""
    total = losses[:0].sum() + kl[:0].sum()
    for values in (losses, kl):
        pairs = zip(_by_sample(values, batch), batch.loss_masks, strict=True)
        parts = [value for value, mask in pairs if mask.any()]
        total = total + _added(parts, values)
    return total / max(batch.num_tokens, 1)


def logged_over_every_rollout_of_the_step(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, list[Tensor | float]]]:
    """Sums gathered by rollout, and logged with the step's rollouts, told by one micro-batch."""
    totals: dict[int, list[Tensor]] = {}
    for rollout, value in zip(batch.rollout_ids, _by_sample(losses, batch), strict=True):
        totals.setdefault(rollout, []).append(value)
    total = _added([torch.stack(turns).sum() for turns in totals.values()], losses)
    count = (batch.divisor or 1.0) * max(batch.num_rollouts, 1)
    # Gathered copies all log the sum, so that all of them log its count.
    first = batch.index == 0 and batch.dp_rank == 0 and (batch.gathered or batch.cp_rank == 0)
    return total / count, {"loss": [total.detach(), count if first else 0.0]}
