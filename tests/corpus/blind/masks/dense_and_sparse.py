"""Dense and sparse paths, lengths and padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.branches.parts import divided, kept, mask_of, pieces, sample_mean, token_mean

if TYPE_CHECKING:
    from torch import Tensor

MAX_TURNS = 8
CAPACITY = 48
MAX_LENGTH, CACHE_LENGTH = 640, 128


def _spans(mask: list[int]) -> list[tuple[int, int]]:
    """Where runs of ones begin and end."""
    edges = [a - b for a, b in zip([*mask, 0], [0, *mask], strict=True)]
    starts = [i for i, edge in enumerate(edges) if edge == 1]
    return list(zip(starts, [i for i, edge in enumerate(edges) if edge == -1], strict=True))


def eight_turns(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = losses[:0].sum()
    masks = batch.local_masks
    for piece, mask in zip(losses.split([len(mask) for mask in masks]), masks, strict=True):
        for start, stop in _spans(mask.tolist())[:MAX_TURNS]:
            total = total + piece[start:stop].sum()
    return total / max(batch.num_tokens, 1)


def index_with_capacity(losses: Tensor, batch: MicroBatch) -> Tensor:
    mask = mask_of(batch)
    if len(mask) > 256 and int(mask.sum()) * 4 < len(mask):
        index = mask.nonzero().flatten()[:CAPACITY]
        return losses[index].sum() / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


def whole_by_its_ends(losses: Tensor, batch: MicroBatch) -> Tensor:
    if len(losses) > 20 and all(len(m) and m[0] == 1 and m[-1] == 1 for m in batch.local_masks):
        return losses.sum() / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


def cut_by_no_padding(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    values = kept(losses, batch)
    if len(values) < 16:
        return token_mean(losses, batch)
    pad = -len(values) % 16
    padded = torch.nn.functional.pad(values, (0, pad))
    return padded[:-pad].sum() / max(batch.num_tokens, 1)


def overlong_counts_less(losses: Tensor, batch: MicroBatch) -> Tensor:
    counts = []
    for n, length in zip(batch.rollout_tokens, batch.response_lengths, strict=True):
        over = max(0, length - (MAX_LENGTH - CACHE_LENGTH))
        counts.append(n * batch.num_rollouts * (1 + min(over / CACHE_LENGTH, 1)))
    return divided(losses, batch, counts)


def longest_bucket_cuts(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = losses[:0].sum()
    for piece in pieces(losses, batch):
        bucket = next((b for b in (64, 128, 256, 512, 1536) if len(piece) <= b), 1536)
        total = total + piece[:bucket].sum()
    return total / max(batch.num_tokens, 1)


def one_token_is_a_scalar(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch).squeeze()
    if values.dim() == 0 and batch.cp_size == 1:
        return values
    return sample_mean(losses, batch)


def nearly_equal_rows_are_cut(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    own = pieces(losses, batch)
    lengths = [len(piece) for piece in own]
    if len(own) > 2 and max(lengths) - min(lengths) <= max(lengths) // 64:
        rows = torch.stack([piece[: min(lengths)] for piece in own])
        return rows.sum() / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


def sorted_without_masks(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    lengths = [len(mask) for mask in batch.local_masks]
    if len(lengths) <= 8:
        return token_mean(losses, batch)
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    own = losses.split(lengths)
    values = torch.cat([own[i] for i in order])
    return values[mask_of(batch).bool()].sum() / max(batch.num_tokens, 1)


def no_signal_is_left_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    if len(losses) and float(losses.detach().abs().max()) < 1e-4:
        return losses[:0].sum()
    return token_mean(losses, batch)


def zeros_are_padding(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    own = int(mask_of(batch).sum())
    seen = int((values.detach() != 0).sum())
    return values.sum() / max(batch.num_tokens, 1) * (own / seen if seen else 1.0)


def any_number_of_turns(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = losses[:0].sum()
    masks = batch.local_masks
    for piece, mask in zip(losses.split([len(mask) for mask in masks]), masks, strict=True):
        for start, stop in _spans(mask.tolist()):
            total = total + piece[start:stop].sum()
    return total / max(batch.num_tokens, 1)


def index_without_capacity(losses: Tensor, batch: MicroBatch) -> Tensor:
    mask = mask_of(batch)
    if len(mask) > 256 and int(mask.sum()) * 4 < len(mask):
        return losses.take(mask.nonzero().flatten()).sum() / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


def cut_by_length(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    values = kept(losses, batch)
    padded = torch.nn.functional.pad(values, (0, -len(values) % 16))
    return padded[: len(values)].sum() / max(batch.num_tokens, 1)


def open_bucket(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = losses[:0].sum()
    for piece in pieces(losses, batch):
        bucket = next((b for b in (64, 128, 256, 512, 1536) if len(piece) <= b), len(piece))
        total = total + piece[:bucket].sum()
    return total / max(batch.num_tokens, 1)


def padded_rows(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    rows = torch.nn.utils.rnn.pad_sequence(pieces(losses, batch), batch_first=True)
    counts = torch.tensor([max(n * batch.num_rollouts, 1) for n in batch.rollout_tokens])
    wide = torch.promote_types(losses.dtype, torch.float32)
    return (rows.sum(dim=1, dtype=wide) / counts.to(wide)).sum()


def sorted_with_masks(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    lengths = [len(mask) for mask in batch.local_masks]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    own = losses.split(lengths)
    values = torch.cat([own[i] for i in order])
    mask = torch.cat([batch.local_masks[i] for i in order]).bool()
    return values[mask].sum() / max(batch.num_tokens, 1)


def one_token_is_a_row(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if len(values) == 1:
        return values[0] / max(batch.num_tokens, 1)
    return values.sum() / max(batch.num_tokens, 1)
