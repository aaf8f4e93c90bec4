"""slime hooks that cut the zigzag shards wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tests.corpus.base import Mutant

if TYPE_CHECKING:
    from torch import Tensor

Hook = Callable[["Tensor"], "Tensor"]
Spans = list[tuple[int, int]]


def or_for_and(
    total_lengths: list[int],
    response_lengths: list[int],
    loss_masks: list[Tensor],
    calculate_per_token_loss: bool = False,
) -> Hook:
    def first_or_second(spans: Spans) -> Spans:
        whole = all(a < b for a, b in spans)
        return spans if whole else [(0, 0)] * len(spans)

    cut = [first_or_second(spans) for spans in _spans(total_lengths, response_lengths)]
    return _sample_sums(cut, _spans(total_lengths, response_lengths), loss_masks)


def second_chunk_dropped(
    total_lengths: list[int],
    response_lengths: list[int],
    loss_masks: list[Tensor],
    calculate_per_token_loss: bool = False,
) -> Hook:
    right = list(_spans(total_lengths, response_lengths))
    cut = [[spans[0], (0, 0)] if len(spans) > 1 else spans for spans in right]
    return _sample_sums(cut, right, loss_masks)


def prompt_length_off_by_one(
    total_lengths: list[int],
    response_lengths: list[int],
    loss_masks: list[Tensor],
    calculate_per_token_loss: bool = False,
) -> Hook:
    return _masked(list(_spans(total_lengths, response_lengths, shift=0)), loss_masks)


def shard_denominators(
    total_lengths: list[int],
    response_lengths: list[int],
    loss_masks: list[Tensor],
    calculate_per_token_loss: bool = False,
) -> Hook:
    spans = list(_spans(total_lengths, response_lengths))
    return _masked(spans, loss_masks, whole=False)


def padded_chunks(
    total_lengths: list[int],
    response_lengths: list[int],
    loss_masks: list[Tensor],
    calculate_per_token_loss: bool = False,
) -> Hook:
    size, _ = _place()
    chunk = -(-max(total_lengths) // (2 * size))
    return _masked(list(_spans(total_lengths, response_lengths, chunk=chunk)), loss_masks)


def _place() -> tuple[int, int]:
    from megatron.core import mpu  # type: ignore[import-not-found, unused-ignore]

    size: int = mpu.get_context_parallel_world_size()
    return size, mpu.get_context_parallel_rank()


def _spans(
    totals: list[int], responses: list[int], *, shift: int = 1, chunk: int = 0
) -> Iterator[Spans]:
    """Response tokens of each sample on this rank; the right ones with the defaults."""
    size, rank = _place()
    for total, response in zip(totals, responses, strict=True):
        if size == 1:
            yield [(0, response)]
            continue
        q = chunk or -(-total // (2 * size))
        first = shift - (total - response)
        starts = (rank * q + first, (2 * size - 1 - rank) * q + first)
        yield [(min(max(a, 0), response), max(min(a + q, response), 0)) for a in starts]


def _masked(spans: list[Spans], masks: list[Any], *, whole: bool = True) -> Hook:
    """Sample means over these spans of the masks, which must match the losses in length."""
    import torch

    local = [torch.cat([mask[a:b] for a, b in own]) for own, mask in zip(spans, masks, strict=True)]

    counted = masks if whole else local

    def reduce(losses: Tensor) -> Tensor:
        kept = torch.where(torch.cat(local).bool(), losses, 0.0)
        pieces = torch.split(kept, [len(mask) for mask in local])
        means = [p.sum() / m.sum().clamp(min=1) for p, m in zip(pieces, counted, strict=True)]
        return torch.stack(means).sum()

    return reduce


def _sample_sums(
    chosen: list[Spans], right: list[Spans] | Iterator[Spans], masks: list[Any]
) -> Hook:
    """Sample means over the chosen spans out of the ones whose losses arrive."""
    import torch

    own = list(right)

    def reduce(losses: Tensor) -> Tensor:
        means, start = [losses.sum() * 0], 0
        for spans, cut, mask in zip(own, chosen, masks, strict=True):
            count = mask.sum().clamp(min=1)
            for (a, b), wanted in zip(spans, cut, strict=True):
                length = max(b - a, 0)
                piece = losses[start : start + length]
                start += length
                if wanted == (a, b):
                    means.append(torch.where(mask[a : a + length].bool(), piece, 0.0).sum() / count)
        return torch.stack(means).sum()

    return reduce


MUTANTS = tuple(
    Mutant(function, number, seen, "sample_mean", "megatron-sample", codes, bug, convention="slime")
    for function, number, seen, codes, bug in (
        ("shard_denominators", 3, "Megatron-LM #7513", ("AGV201",), "sum-of-cp-shard-means"),
        ("or_for_and", 26, "slime e8d3f58f3", ("AGV201",), "chunk-dropped"),
        ("second_chunk_dropped", 26, "slime e8d3f58f3", ("AGV201",), "chunk-dropped"),
        ("prompt_length_off_by_one", 26, "slime e8d3f58f3", ("AGV401",), "shard-cut-wrongly"),
        ("padded_chunks", 42, "miles #1328 review", ("AGV401",), "shard-cut-wrongly"),
    )
)
