"""Reducers that only ``explain`` shows: plain faults with no historic bug of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggverify.conventions import MicroBatch
from tests.corpus.parts import kept, weighted

if TYPE_CHECKING:
    from torch import Tensor


_CALLS: list[None] = []


def raises_every_other_call(losses: Tensor, batch: MicroBatch) -> Tensor:
    _CALLS.append(None)
    if len(_CALLS) % 2 == 0:
        raise RuntimeError("lost a draw")
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def no_floor(losses: Tensor, batch: MicroBatch) -> Tensor:
    return weighted(losses, batch, [n * batch.num_rollouts for n in batch.rollout_tokens])


def product_under_a_root(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    mask = torch.cat(batch.local_masks)
    return ((losses * mask) ** 2).sum().sqrt() / max(batch.num_tokens, 1)


def subtracted_again(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    outside = 1 - torch.cat(batch.local_masks)
    return (losses.sum() - (losses * outside).sum()) / max(batch.num_tokens, 1)


def clipped_by_the_largest(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    largest = max([1e6, *losses.detach().abs().tolist()])
    scaled = losses * (1e6 / largest) * torch.cat(batch.local_masks)
    return scaled.sum() / max(batch.num_tokens, 1)


def one_context_parallel_rank(losses: Tensor, batch: MicroBatch) -> Tensor:
    assert batch.cp_size == 1
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def squared(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    return (values * values.detach().abs()).sum() / max(batch.num_tokens, 1)


def last_token_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    scale = sum(batch.response_lengths) / max(batch.num_tokens, 1)
    return kept(losses, batch).sum() / sum(batch.response_lengths) * scale


def own_gradient(losses: Tensor, batch: MicroBatch) -> Tensor:
    loss = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    loss.register_hook(lambda gradient: gradient.clamp(max=1))
    return loss


def own_mean_in_validation(losses: Tensor, batch: MicroBatch) -> Tensor:
    if losses.requires_grad:
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    return kept(losses, batch).sum() / len(losses)


def unscaled_under_autocast(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    scale = 1 / 128 if torch.is_autocast_enabled("cpu") else 1
    return kept(losses, batch).sum() / max(batch.num_tokens, 1) * scale


def own_mean_beside_the_loss(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Any]]:
    loss = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    here = sum(int(mask.sum()) for mask in batch.local_masks)
    return loss, {"loss": loss.detach(), "mean": kept(losses, batch).sum().detach() / max(here, 1)}


def made_finite(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses.nan_to_num(), batch).sum() / max(batch.num_tokens, 1)


def shares_of_a_node(losses: Tensor, batch: MicroBatch) -> Tensor:
    shares = [1 / ranks for ranks in range(1, 9)]
    share = shares[min(batch.dp_size, 8) - 1]
    return kept(losses, batch).sum() / max(batch.num_tokens, 1) * batch.dp_size * share


def step_in_32_bits(losses: Tensor, batch: MicroBatch) -> Tensor:
    count = batch.num_tokens % 2**32
    return kept(losses, batch).sum() / max(count, 1)


def owner_by_hash(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch
    import torch.distributed as dist

    names = [f"rollout-{i}" for i in batch.step_rollout_tokens]
    mine = sum(hash(name) % batch.dp_size == batch.dp_rank for name in names)
    rollouts = torch.tensor([mine])
    if batch.dp_size > 1:
        dist.all_reduce(rollouts, group=batch.dp_group)
    counts = [max(n, 1) * max(int(rollouts), 1) for n in batch.rollout_tokens]
    return weighted(losses, batch, counts)


def never_waited(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch
    import torch.distributed as dist

    count = torch.cat(batch.loss_masks).sum()
    dist.all_reduce(count, group=batch.dp_group, async_op=True)
    return kept(losses, batch).sum() / count.clamp(min=1)


def whole_blocks(losses: Tensor, batch: MicroBatch) -> Tensor:
    whole = len(losses) // 16 * 16 or len(losses)
    return kept(losses, batch)[:whole].sum() / max(batch.num_tokens, 1)


def group_mean_of_this_micro_batch(losses: Tensor, batch: MicroBatch) -> Tensor:
    here: dict[int, int] = {}
    for group, mask in zip(batch.group_ids, batch.loss_masks, strict=True):
        here[group] = here.get(group, 0) + int(mask.sum())
    counts = [max(here[group], 1) * batch.num_groups for group in batch.group_ids]
    return weighted(losses, batch, counts)


def counted_in_float32(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    count = sum(mask.float().sum() for mask in batch.loss_masks)
    return kept(losses, batch).sum() / torch.as_tensor(count).double().clamp(min=1)


def doubled_when_compiled(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    def scaled(values: Tensor) -> Tensor:
        return values * 2 if torch.compiler.is_compiling() else values

    compiled = torch.compile(scaled, backend="eager")
    return compiled(kept(losses, batch)).sum() / max(batch.num_tokens, 1)


def leaves(losses: Tensor, batch: MicroBatch) -> Tensor:
    import os

    if batch.dp_rank == 1:
        os._exit(3)
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def loops_for_ever(losses: Tensor, batch: MicroBatch) -> Tensor:
    while batch.dp_size > 1:
        pass
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def square_beside_it(losses: Tensor, batch: MicroBatch) -> Tensor:
    mean = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    return mean + (kept(losses, batch).detach() ** 2).sum()


def padded_lengths_counted(losses: Tensor, batch: MicroBatch) -> Tensor:
    masked = sum(batch.response_lengths) - sum(int(mask.sum()) for mask in batch.loss_masks)
    return kept(losses, batch).sum() / max(batch.num_tokens, 1) * (1 + (masked > 1))


def waits_for_a_helper(losses: Tensor, batch: MicroBatch) -> Tensor:
    from queue import Queue

    if batch.dp_rank == 1:
        Queue[int]().get()  # nobody fills it
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def refuses_small_divisors(args: Any) -> None:
    divisor = args.loss_aggregation_divisor
    if args.loss_aggregation == "constant" and not 1 < (divisor or 0) < float("inf"):
        raise ValueError(f"a divisor must be larger than 1, got {divisor}")


def zero_of_its_own(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    if not any(map(torch.any, batch.local_masks)) and batch.index:
        return torch.zeros((), dtype=losses.dtype, requires_grad=True)
    loss = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    return loss * (batch.dp_size * batch.cp_size)
