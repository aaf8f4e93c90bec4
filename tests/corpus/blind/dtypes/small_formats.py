"""Dtypes, counts, ids and the modes torch is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.branches.parts import (
    divided,
    kept,
    mask_of,
    pieces,
    prompt_mean,
    sample_mean,
    token_mean,
)

if TYPE_CHECKING:
    from torch import Tensor


def positions_in_bfloat16(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = losses[:0].sum()
    for piece, mask in zip(pieces(losses, batch), batch.local_masks, strict=True):
        if len(piece) == 0:
            continue
        count = int(mask.sum())
        position = mask.to(losses.dtype).cumsum(0)
        total = total + piece.sum() / position[-1].clamp(min=1) * count
    return total / max(batch.num_tokens, 1)


def counts_in_float16(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    rows = torch.stack([piece.sum() for piece in pieces(losses, batch)])
    counts = torch.tensor([n * batch.num_rollouts for n in batch.rollout_tokens]).to(losses.dtype)
    return (rows / counts.clamp(min=1)).sum()


def counts_multiplied_in_int32(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    tokens = torch.tensor(batch.rollout_tokens, dtype=torch.int32)
    counts = tokens * batch.num_rollouts
    return divided(losses, batch, [float(n) for n in counts.tolist()])


def a_thousand_ids(losses: Tensor, batch: MicroBatch) -> Tensor:
    keys = [g * 1000 + r for g, r in zip(batch.group_ids, batch.rollout_ids, strict=True)]
    tokens: dict[int, int] = {}
    for key, n in zip(keys, batch.group_tokens, strict=True):
        tokens.setdefault(key, n)
    return divided(losses, batch, [tokens[key] * batch.num_groups for key in keys])


def prompts_from_group_size(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.num_rollouts <= 32:
        return prompt_mean(losses, batch)
    size = max(batch.group_ids.count(name) for name in batch.group_ids)
    prompts = max(1, min(batch.num_groups, batch.num_rollouts // size))
    return divided(losses, batch, [n * prompts for n in batch.group_tokens])


def windows_of_eight(losses: Tensor, batch: MicroBatch) -> Tensor:
    k = batch.num_microbatches
    loss = token_mean(losses, batch)
    return loss * k / (-(-k // 8) * 8) if k > 8 else loss


def own_mean_without_grad(losses: Tensor, batch: MicroBatch) -> Tensor:
    if losses.requires_grad:
        return token_mean(losses, batch)
    return kept(losses, batch).sum() / max(int(mask_of(batch).sum()), 1)


def autocast_divides_again(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    loss = token_mean(losses, batch)
    return loss / 128 if torch.is_autocast_enabled("cpu") else loss


def means_times_counts_in_half(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    values, mask = kept(losses, batch), mask_of(batch)
    if losses.dtype != torch.float16:
        return token_mean(losses, batch)
    share = (mask.sum().to(losses.dtype) * 64) / (max(batch.num_tokens, 1) * 64)
    return values.sum() / mask.sum().clamp(min=1) * share


def counts_in_float32(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    rows = torch.stack([piece.float().sum() for piece in pieces(losses, batch)])
    if losses.dtype == torch.float64:
        rows = torch.stack([piece.sum() for piece in pieces(losses, batch)])
    counts = torch.tensor([n * batch.num_rollouts for n in batch.rollout_tokens])
    return (rows / counts.clamp(min=1).to(rows.dtype)).sum()


def pairs_of_ids(losses: Tensor, batch: MicroBatch) -> Tensor:
    keys = list(zip(batch.group_ids, batch.rollout_ids, strict=True))
    tokens = dict(zip(keys, batch.group_tokens, strict=True))
    return divided(losses, batch, [tokens[key] * batch.num_groups for key in keys])


def scaled_and_unscaled(losses: Tensor, batch: MicroBatch) -> Tensor:
    return (kept(losses, batch) * 0.25).sum() / max(batch.num_tokens, 1) * 4


def the_same_without_grad(losses: Tensor, batch: MicroBatch) -> Tensor:
    if losses.requires_grad:
        return token_mean(losses, batch)
    return losses[mask_of(batch).bool()].sum() / max(batch.num_tokens, 1)


def outside_of_autocast(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    with torch.autocast("cpu", enabled=False):
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def compensated(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = losses[:0].sum()
    lost = total
    for part in kept(losses, batch).split(64):
        term = part.sum() - lost
        new = total + term
        lost = (new - total) - term
        total = new
    return total / max(batch.num_tokens, 1)


def weights_first(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    weights = torch.cat(
        [
            mask.to(losses.dtype) / max(n * batch.num_rollouts, 1)
            for mask, n in zip(batch.local_masks, batch.rollout_tokens, strict=True)
        ]
    )
    values = torch.where(weights != 0, losses, torch.zeros_like(losses))
    return (values * weights).sum()


def reported_in_float64(losses: Tensor, batch: MicroBatch) -> Tensor:
    loss = token_mean(losses, batch)
    exact = (kept(losses, batch).detach().double().sum() / max(batch.num_tokens, 1)).to(loss.dtype)
    return loss + (exact - loss).detach()


def one_mean_for_all(losses: Tensor, batch: MicroBatch) -> Tensor:
    if len(set(batch.rollout_tokens)) == 1 and len(batch.rollout_tokens) > 1:
        return kept(losses, batch).sum() / max(batch.rollout_tokens[0] * batch.num_rollouts, 1)
    return sample_mean(losses, batch)
