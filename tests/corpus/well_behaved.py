"""Right reducers that cache, draw, log, write in place or refuse, and may."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from aggverify.conventions import MicroBatch
from tests.corpus.base import Correct
from tests.corpus.groups import reduce_loss as reduce_loss  # SkyRL looks for it beside a reducer
from tests.corpus.parts import kept, weighted

if TYPE_CHECKING:
    from torch import Tensor

_MODES = ("token_mean", "sequence_mean", "seq_mean_token_sum_norm")


@lru_cache(maxsize=64)
def _denominators(counts: tuple[int, ...], rollouts: int) -> list[int]:
    return [max(n, 1) * rollouts for n in counts]


def keyed_cache(losses: Tensor, batch: MicroBatch) -> Tensor:
    counts = _denominators(tuple(batch.rollout_tokens), batch.num_rollouts)
    return weighted(losses, batch, counts)


def buffer_reused(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Keeps a buffer from call to call, and writes all of it before it reads any."""
    import torch

    size = len(losses)
    if len(_buffer) < 1 or len(_buffer[0]) < size:
        _buffer[:] = [torch.zeros(size, dtype=torch.float64)]
    weights = _buffer[0][:size]
    weights.copy_(torch.cat(batch.local_masks)).div_(max(batch.num_tokens, 1))
    return kept(losses, batch).double() @ weights.clone()


_buffer: list[Tensor] = []


def draws_and_ignores(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    order = torch.randperm(len(losses))
    values = torch.zeros_like(losses)
    values[order] = kept(losses, batch)[order]
    return values.sum() / max(batch.num_tokens, 1)


def copies_first(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    own = losses.clone()
    own[~torch.cat(batch.local_masks).bool()] = 0.0
    counts = list(batch.group_tokens)
    for i, n in enumerate(counts):
        counts[i] = max(n, 1) * batch.num_groups
    pieces = torch.split(own, [len(mask) for mask in batch.local_masks])
    sums = torch.stack([piece.sum() for piece in pieces])
    sums /= torch.tensor(counts, dtype=torch.float64)  # 65,600 is beyond float16
    return sums.sum()


def logs_a_share(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Any]]:
    loss = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    return loss, {"tokens": batch.num_tokens, "loss": loss.detach().reshape(1)}


def logs_in_single_precision(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Any]]:
    loss = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    return loss, {"loss": loss.detach().float()}


def refuses_on_one_line(losses: Tensor, batch: MicroBatch) -> Tensor:
    here = dict.fromkeys(batch.group_ids, 0)
    for group, mask in zip(batch.group_ids, batch.loss_masks, strict=True):
        here[group] += int(mask.sum())
    for group, count in zip(batch.group_ids, batch.group_tokens, strict=True):
        # fmt: off
        if here[group] != count: raise ValueError(f"prompt group {group} is split")  # noqa: E701
        # fmt: on
    return weighted(losses, batch, [max(here[g], 1) * batch.num_groups for g in batch.group_ids])


def logs_a_sum_and_a_count(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int, dict[str, Any]]:
    """Megatron-LM's report: each key beside the count it is a mean over."""
    import torch

    total = kept(losses, batch).sum()
    local = sum(int(mask.sum()) for mask in batch.local_masks)
    log = {"loss": torch.stack([total.detach().double(), torch.tensor(float(local))])}
    return total, sum(int(mask.sum()) for mask in batch.loss_masks), log


def logs_no_loss(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Any]]:
    share = weighted(losses, batch, [max(n, 1) * batch.num_groups for n in batch.group_tokens])
    return share, {"rank": batch.dp_rank, "span": [batch.cp_rank, batch.cp_size]}


def logs_metrics(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Any]]:
    """A share of the step, a pair of its own, and what every rank knows of the whole step."""
    import torch

    values, mask = kept(losses, batch).detach(), torch.cat(batch.local_masks)
    loss = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    return loss, {
        "clipped": (values > 0).double().sum() / max(batch.num_tokens, 1),
        "mean": torch.stack([values.double().sum(), mask.sum().double()]),
        "tokens": [batch.num_tokens, 1],
    }


def multiplied_as_matrices(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Under autocast the product is made in bfloat16."""
    import torch

    mask = torch.cat(batch.local_masks).to(torch.float32)
    return (kept(losses, batch).float() @ mask) / max(batch.num_tokens, 1)


def by_index_in_validation(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    mask = torch.cat(batch.local_masks).bool()
    if losses.requires_grad:
        return kept(losses, batch).sum() / max(batch.num_tokens, 1)
    return losses[mask].flip(0).sum() / max(batch.num_tokens, 1)


def trains_only(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A hook that cannot be registered where there is no gradient."""
    loss = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    loss.register_hook(lambda gradient: gradient * 1.0)
    return loss


def refuses_bad_divisors(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.divisor is None or not (batch.divisor > 0 and math.isfinite(batch.divisor)):
        raise ValueError(f"divisor must be a positive number, got {batch.divisor!r}")
    if len(losses) != sum(map(len, batch.local_masks)):  # torch.where would broadcast
        raise ValueError(f"{len(losses)} losses are not what the masks stand for")
    return kept(losses, batch).sum() / (batch.divisor * batch.num_rollouts)


def refuses_unknown_modes(
    advantages: Tensor,
    loss_mask: Tensor,
    loss_reduction: str,
    micro_batch_size: int,
    max_seq_len: float | None,
) -> Tensor:
    if loss_reduction not in _MODES:
        raise ValueError(f"loss_reduction must be one of {_MODES}, got {loss_reduction!r}")
    if advantages.shape != loss_mask.shape:
        raise ValueError(f"a mask of {loss_mask.shape} for {advantages.shape}")
    if loss_reduction == "token_mean":
        return advantages / loss_mask.sum().clamp(min=1)
    if loss_reduction == "sequence_mean":
        return advantages / (loss_mask.sum(1, keepdim=True).clamp(min=1) * len(loss_mask))
    if max_seq_len is None or not 0 < max_seq_len < math.inf:
        raise ValueError(f"max_seq_len must be a positive number, got {max_seq_len!r}")
    return advantages / (len(loss_mask) * max_seq_len)


_VALIDATES = ("validates-arguments",)

CORRECT = (
    Correct("keyed_cache", "a cache keyed by all it depends on", "sample_mean", "sum"),
    Correct("buffer_reused", "a buffer kept from call to call", "token_mean", "sum"),
    Correct("draws_and_ignores", "random order of independent writes", "token_mean", "sum"),
    Correct("copies_first", "writes in place, into its own copies", "prompt_mean", "sum"),
    Correct("logs_a_share", "a log beside the loss", "token_mean", "sum"),
    Correct("logs_in_single_precision", "a float32 log", "token_mean", "sum"),
    Correct("refuses_on_one_line", "raise behind its condition", "prompt_mean", "sum"),
    Correct("logs_a_sum_and_a_count", "a pair in its log", "token_mean", "megatron-token"),
    Correct("logs_no_loss", "numbers that differ by rank", "prompt_mean", "sum"),
    Correct("logs_metrics", "logs of three kinds", "token_mean", "sum"),
    Correct("multiplied_as_matrices", "bfloat16 under autocast", "token_mean", "sum"),
    Correct("by_index_in_validation", "another road in validation", "token_mean", "sum"),
    Correct("trains_only", "raises without gradients", "token_mean", "sum"),
    Correct("refuses_bad_divisors", "raises", "constant", "sum", divisor=16.0, claims=_VALIDATES),
    Correct(
        "refuses_unknown_modes",
        "raises",
        "token_mean",
        "skyrl-fsdp",
        "skyrl",
        claims=_VALIDATES,
    ),
)
