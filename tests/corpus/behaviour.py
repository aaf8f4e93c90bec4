"""Reducers with right weights, most of them, that keep, alter or accept what they should not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aggverify.conventions import MicroBatch
from tests.corpus.base import Mutant
from tests.corpus.groups import reduce_loss as reduce_loss  # SkyRL looks for it beside a reducer
from tests.corpus.parts import kept, weighted

if TYPE_CHECKING:
    from torch import Tensor

CEILING = 64.0
_last: dict[str, int] = {}
_window: list[int] = []
_so_far: list[int] = [0, 0]
_fullest: list[int] = []
_first: list[int] = []
_reduced: dict[int, int] = {}


def previous_denominator(losses: Tensor, batch: MicroBatch) -> Tensor:
    count = _last.get("tokens", batch.num_tokens)
    _last["tokens"] = batch.num_tokens
    return kept(losses, batch).sum() / max(count, 1)


def generation_window_count(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Tokens counted over the last two optimizer steps, losses summed over one."""
    if _window[-1:] != [batch.num_tokens]:
        _window[:] = [*_window[-1:], batch.num_tokens]
    return kept(losses, batch).sum() / max(sum(_window) / len(_window), 1)


def tokens_so_far(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Tokens of all steps: nobody sets the count back to 0."""
    tokens, calls = _so_far
    tokens += batch.num_tokens if not calls else 0
    _so_far[:] = tokens, (calls + 1) % batch.num_microbatches
    return kept(losses, batch).sum() / max(tokens, 1)


def fullest_window(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Takes the fullest window it has seen for the configured number of micro-batches."""
    _fullest[:] = [max(*_fullest, batch.num_microbatches, 1)]
    mean = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    return mean * _fullest[0] * batch.dp_size * batch.cp_size


def first_denominator(losses: Tensor, batch: MicroBatch) -> Tensor:
    if not _first:
        _first.append(batch.num_tokens)
    return kept(losses, batch).sum() / max(_first[0], 1)


def reduced_once(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Saves the all-reduce of a count after the first step."""
    import torch
    import torch.distributed as dist

    world = dist.get_world_size()
    if world not in _reduced:
        tokens = torch.tensor(batch.num_tokens / world)
        dist.all_reduce(tokens)
        _reduced[world] = round(float(tokens))
    count = batch.num_tokens if world == 1 else _reduced[world]
    return kept(losses, batch).sum() / max(count, 1)


def jittered(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    noise = 1 + 1e-12 * float(torch.rand(()))
    return kept(losses, batch).sum() / max(batch.num_tokens, 1) * noise


def masks_in_place(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    losses *= torch.cat(batch.local_masks)
    return losses.sum() / max(batch.num_tokens, 1)


def denominators_in_place(losses: Tensor, batch: MicroBatch) -> Tensor:
    for i, count in enumerate(batch.rollout_tokens):
        batch.rollout_tokens[i] = max(count, 1) * batch.num_rollouts
    return weighted(losses, batch, batch.rollout_tokens)


def advantages_in_place(
    advantages: Tensor,
    loss_mask: Tensor,
    loss_reduction: str,
    micro_batch_size: int,
    max_seq_len: float | None,
) -> Tensor:
    advantages /= loss_mask.sum().clamp(min=1)
    return advantages


def scaled_before_a_threshold(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    scaled = kept(losses, batch) / max(batch.num_tokens, 1)
    return torch.where(scaled.abs() < CEILING, scaled, scaled.detach()).sum()


def zeroes_gradients(losses: Tensor, batch: MicroBatch) -> Tensor:
    """What an ``optimizer.zero_grad()`` between two accumulation calls comes to."""
    nodes: list[Any] = [losses.grad_fn]
    while nodes:
        node = nodes.pop()
        if hasattr(node, "variable") and node.variable.grad is not None:
            node.variable.grad.zero_()
        nodes += [parent for parent, _ in getattr(node, "next_functions", ()) if parent]
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def mode_without_effect(
    advantages: Tensor,
    loss_mask: Tensor,
    loss_reduction: str,
    micro_batch_size: int,
    max_seq_len: float | None,
) -> Tensor:
    if loss_reduction not in ("token_mean", "sequence_mean", "seq_mean_token_sum_norm"):
        raise ValueError(f"unknown loss_reduction {loss_reduction!r}")
    return advantages / loss_mask.sum().clamp(min=1)


def silent_fallback(
    advantages: Tensor,
    loss_mask: Tensor,
    loss_reduction: str,
    micro_batch_size: int,
    max_seq_len: float | None,
) -> Tensor:
    if loss_reduction == "sequence_mean":
        return advantages / (loss_mask.sum(1, keepdim=True).clamp(min=1) * len(loss_mask))
    if loss_reduction == "seq_mean_token_sum_norm":
        if not (max_seq_len and max_seq_len > 0):
            raise ValueError(f"max_seq_len must be positive, got {max_seq_len!r}")
        return advantages / (len(loss_mask) * max_seq_len)
    return advantages / loss_mask.sum().clamp(min=1)  # whatever the mode is called


def list_for_a_flag(
    total_lengths: list[int],
    response_lengths: list[int],
    loss_masks: list[Tensor],
    calculate_per_token_loss: bool = False,
) -> Callable[[Tensor], Tensor]:
    """Right on the sample path; but slime's core function takes denominators fourth."""
    if not len(total_lengths) == len(response_lengths) == len(loss_masks):
        raise ValueError("one total length, response length and mask a sample, please")
    for total, length, mask in zip(total_lengths, response_lengths, loss_masks, strict=True):
        if length != len(mask) or total < length:
            raise ValueError(f"a mask of {len(mask)} for {length} of {total} tokens")
    if calculate_per_token_loss:  # a list is true as well
        return lambda losses: losses.sum()
    from tests.corpus.correct import get_pg_loss_reducer

    return get_pg_loss_reducer(total_lengths, response_lengths, loss_masks)  # type: ignore[return-value]


def zip_without_strict(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    if batch.num_rollouts < 1 or len(losses) != sum(map(len, batch.local_masks)):
        raise ValueError("no rollouts, or more losses than masks")
    pieces = torch.split(kept(losses, batch), [len(mask) for mask in batch.local_masks])
    counts = batch.rollout_tokens
    loss = losses[:0].sum()
    for piece, count in zip(pieces, counts):  # noqa: B905
        loss = loss + piece.sum() / max(count, 1) / batch.num_rollouts
    return loss


MUTANTS = (
    Mutant(
        "previous_denominator",
        58,
        "a cached denominator from the previous step",
        "token_mean",
        "sum",
        ("AGV408",),
        "state-between-steps",
    ),
    Mutant(
        "generation_window_count",
        7,
        "TRL #5619 / #6024",
        "token_mean",
        "sum",
        ("AGV408",),
        "earlier-windows-counted",
    ),
    Mutant(
        "tokens_so_far",
        7,
        "TRL #5619 / #6024",
        "token_mean",
        "sum",
        ("AGV407", "AGV408"),
        "earlier-windows-counted",
    ),
    Mutant(
        "fullest_window",
        8,
        "ms-swift #10084",
        "token_mean",
        "accumulated-mean",
        ("AGV208",),
        "configured-window",
    ),
    Mutant(
        "first_denominator",
        58,
        "a cached denominator from the previous step",
        "token_mean",
        "sum",
        ("AGV408",),
        "state-between-steps",
    ),
    Mutant(
        "reduced_once",
        58,
        "a cached denominator from the previous step",
        "token_mean",
        "sum",
        ("AGV408",),
        "state-between-steps",
    ),
    Mutant(
        "jittered",
        58,
        "a generator's state is state as well",
        "token_mean",
        "sum",
        ("AGV407",),
        "not-repeatable",
    ),
    Mutant(
        "masks_in_place",
        57,
        "SkyRL #925",
        "token_mean",
        "sum",
        ("AGV502",),
        "arguments-changed",
    ),
    Mutant(
        "denominators_in_place",
        57,
        "SkyRL #925",
        "sample_mean",
        "sum",
        ("AGV502",),
        "arguments-changed",
    ),
    Mutant(
        "advantages_in_place",
        57,
        "SkyRL #925",
        "token_mean",
        "skyrl-fsdp",
        ("AGV502",),
        "arguments-changed",
        convention="skyrl",
    ),
    Mutant(
        "scaled_before_a_threshold",
        54,
        "SkyRL since #1296",
        "token_mean",
        "sum",
        ("AGV131",),
        "not-linear",
    ),
    Mutant(
        "zeroes_gradients",
        60,
        "SkyRL #2008",
        "token_mean",
        "sum",
        ("AGV202",),
        "gradients-zeroed",
    ),
    Mutant(
        "mode_without_effect",
        32,
        "autonomous-dev #413",
        "token_mean",
        "skyrl-fsdp",
        ("AGV503",),
        "flag-without-effect",
        convention="skyrl",
    ),
    Mutant(
        "silent_fallback",
        32,
        "autonomous-dev #413",
        "token_mean",
        "skyrl-fsdp",
        ("AGV504",),
        "unchecked-arguments",
        convention="skyrl",
        claims=("validates-arguments",),
    ),
    Mutant(
        "list_for_a_flag",
        53,
        "slime's and miles' core functions",
        "sample_mean",
        "megatron-sample",
        ("AGV504",),
        "two-meanings-of-an-argument",
        convention="slime",
        claims=("validates-arguments",),
    ),
    Mutant(
        "zip_without_strict",
        52,
        "slime",
        "sample_mean",
        "sum",
        ("AGV504",),
        "zip-without-strict",
        claims=("validates-arguments",),
    ),
)
