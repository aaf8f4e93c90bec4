"""The loss mask: multiplied in, shifted, left out, applied too late, written into integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from aggverify.conventions.padded_rows import Side
from aggverify.oracles import Policy
from tests.corpus.base import Correct, Mutant
from tests.corpus.parts import kept, sums, total, weighted

if TYPE_CHECKING:
    from torch import Tensor


def multiplied(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    return (losses * torch.cat(batch.local_masks)).sum() / max(batch.num_tokens, 1)


def kept_alive(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / max(batch.num_tokens, 1) + 0 * losses.sum()


def shifted(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    lengths = [len(mask) for mask in batch.local_masks]
    moved = [
        torch.cat((mask[1:], mask[:0].new_zeros(min(len(mask), 1)))) for mask in batch.local_masks
    ]
    pieces = [
        torch.where(mask.bool(), piece, 0.0).sum() / (max(n, 1) * batch.num_rollouts)
        for mask, piece, n in zip(
            moved, torch.split(losses, lengths), batch.rollout_tokens, strict=True
        )
    ]
    return torch.stack(pieces).sum()


def _rows(losses: Tensor, batch: MicroBatch, side: Side) -> Tensor:
    """The losses padded left, with masks that are padded on this side."""
    import torch

    rows, masks = batch.padded(losses, side="left"), batch.padded(batch.local_masks, side=side)
    return torch.where(masks.bool(), rows, 0.0).sum() / max(batch.num_tokens, 1)


def masks_padded_right(losses: Tensor, batch: MicroBatch) -> Tensor:
    return _rows(losses, batch, "right")


def all_padded_left(losses: Tensor, batch: MicroBatch) -> Tensor:
    return _rows(losses, batch, "left")


def never_applied(losses: Tensor, batch: MicroBatch) -> Tensor:
    return losses.sum() / ((batch.divisor or 1.0) * batch.num_rollouts)


def applied_to_the_result(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    mask = torch.cat(batch.local_masks)
    return torch.where(mask.bool(), losses / mask, 0.0).sum() / max(batch.num_tokens, 1)


def mean_over_an_empty_mask(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    """ROLL's masked mean, with the count that it divides by."""
    import torch

    mask = torch.cat(batch.local_masks)
    mean = torch.where(mask.bool(), losses, 0.0).sum() / mask.sum()
    return mean * mask.sum(), sum(int(m.sum()) for m in batch.loss_masks)


def guarded_by_where(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The division hidden where the count is 0, after it was done."""
    import torch

    count = torch.tensor(float(batch.num_tokens))
    total = (losses * torch.cat(batch.local_masks)).sum()
    return torch.where(count > 0, total / count, 0.0)


def everything_less_the_masked(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    masked = losses[torch.cat(batch.local_masks) == 0]
    return (losses.sum() - masked.sum()) / max(batch.num_tokens, 1)


def written_into_integers(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    weights = torch.zeros_like(torch.cat(batch.local_masks))
    start = 0
    for mask, n in zip(batch.local_masks, batch.rollout_tokens, strict=True):
        weights[start : start + len(mask)] = mask / (max(n, 1) * batch.num_rollouts)
        start += len(mask)
    return (kept(losses, batch) * weights).sum()


def repeated(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    mask = torch.cat(batch.local_masks)
    counts = torch.tensor([max(n, 1) * batch.num_rollouts for n in batch.rollout_tokens])
    times = -(-len(mask) // len(counts))
    return (kept(losses, batch) / counts.repeat(times)[: len(mask)]).sum()


def denominators_run_out(losses: Tensor, batch: MicroBatch) -> Tensor:
    denominators = batch.rollout_tokens[: len(set(batch.rollout_ids))]
    return total(
        s / (max(n, 1) * batch.num_rollouts)
        for s, n in zip(sums(losses, batch), denominators, strict=False)
    )


def counted_after_rejection(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    return kept(losses, batch).sum(), sum(int(mask.sum()) for mask in batch.loss_masks)


def counted_before_final(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    return kept(losses, batch).sum(), sum(int(mask.sum()) for mask in batch.original_masks)


def remainder_rows_dropped(losses: Tensor, batch: MicroBatch) -> Tensor:
    rows = [s / max(batch.num_tokens, 1) for s in sums(losses, batch)]
    whole = len(rows) // 2 * 2
    return total(row * (i < whole) for i, row in enumerate(rows))


def sample_denominators(losses: Tensor, batch: MicroBatch) -> Tensor:
    counts = [max(int(mask.sum()), 1) for mask in batch.loss_masks]
    return weighted(losses, batch, [n * batch.num_rollouts for n in counts])


def response_ends_dropped(losses: Tensor, batch: MicroBatch) -> Tensor:
    """``[:-1]`` of every response, although losses and masks are aligned already."""
    lengths = [len(mask) for mask in batch.local_masks]
    kept_pieces = kept(losses, batch).split(lengths)
    return total(piece[:-1].sum() for piece in kept_pieces) / max(batch.num_tokens, 1)


def inverted(losses: Tensor, batch: MicroBatch) -> Tensor:
    """masked_fill of what counts, where that of what does not was meant."""
    import torch

    mask = torch.cat(batch.local_masks).bool()
    return losses.masked_fill(mask, 0.0).sum() / max(batch.num_tokens, 1)


def taken_as_a_length(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The first tokens, as many as the mask has: right where it has no hole."""
    lengths = [len(mask) for mask in batch.local_masks]
    pairs = zip(losses.split(lengths), batch.local_masks, strict=True)
    return total(x[: int(m.sum())].sum() for x, m in pairs) / max(batch.num_tokens, 1)


def masked_twice(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    mask = torch.cat(batch.local_masks).bool()
    selected = losses[mask]
    return torch.where(mask[: len(selected)], selected, 0.0).sum() / max(batch.num_tokens, 1)


def row_length_for_the_mask(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Liger's and TRL's luspo of token-level ratios: times the row's length, over its width."""
    rows, mask = batch.rows(losses)
    return (rows * mask.sum(1, keepdim=True)).sum() / (batch.num_rollouts * max(rows.shape[1], 1))


CORRECT = (Correct("all_padded_left", "rows that end together", "token_mean", "sum"),)
MUTANTS = (
    Mutant("inverted", 63, "one mode", "token_mean", "sum", ("AGV101",), "mask-inverted"),
    Mutant(
        "taken_as_a_length",
        33,
        "several turns",
        "token_mean",
        "sum",
        ("AGV101",),
        "mask-as-a-length",
    ),
    Mutant("masked_twice", 33, "packed rows", "token_mean", "sum", ("AGV101",), "mask-twice"),
    Mutant(
        "row_length_for_the_mask",
        89,
        "Liger's and TRL's luspo, TRL #6654",
        "sequence_sum",
        "sum",
        ("AGV101",),
        "mask-not-applied",
    ),
    Mutant(
        "response_ends_dropped",
        33,
        "mlx-lm-lora #80",
        "token_mean",
        "sum",
        ("AGV101",),
        "edge-token-dropped",
    ),
    Mutant("multiplied", 24, "SkyRL #1635", "token_mean", "sum", ("AGV123",), "multiply-by-mask"),
    Mutant("kept_alive", 25, "slime, miles", "token_mean", "sum", ("AGV123",), "keep-alive"),
    Mutant("shifted", 33, "mlx-lm-lora #80", "sample_mean", "sum", ("AGV101",), "mask-shifted"),
    Mutant(
        "never_applied",
        63,
        "one mode without its mask",
        "constant",
        "sum",
        ("AGV101",),
        "mask-not-applied",
        divisor=16.0,
    ),
    Mutant(
        "applied_to_the_result",
        64,
        "torch.where on the result only",
        "token_mean",
        "sum",
        ("AGV103",),
        "mask-on-the-result",
    ),
    Mutant(
        "mean_over_an_empty_mask",
        64,
        "ROLL (masked_mean without a floor)",
        "token_mean",
        "megatron-token",
        ("AGV104", "AGV111"),
        "no-floor",
    ),
    Mutant(
        "guarded_by_where",
        64,
        "torch.where on the result only, around a division",
        "token_mean",
        "sum",
        ("AGV111",),
        "guard-on-the-result",
    ),
    Mutant(
        "everything_less_the_masked",
        24,
        "a masked sum as the sum of everything less the sum of what is masked",
        "token_mean",
        "sum",
        ("AGV121",),
        "added-and-subtracted",
    ),
    Mutant(
        "written_into_integers",
        55,
        "SkyRL",
        "sample_mean",
        "sum",
        ("AGV101",),
        "integer-buffer",
    ),
    Mutant(
        "masks_padded_right",
        24,
        "rows padded left, their masks right",
        "token_mean",
        "sum",
        ("AGV101",),
        "mask-other-side",
    ),
    Mutant("repeated", 34, "west #119", "sample_mean", "sum", ("AGV101",), "repeated-in-turn"),
    Mutant("denominators_run_out", 52, "slime", "sample_mean", "sum", ("AGV101",), "list-runs-out"),
    Mutant(
        "counted_after_rejection",
        22,
        "slime 2025, verl",
        "token_mean",
        "megatron-token",
        ("AGV142",),
        "counted-after-rejection",
        claims=("rejection",),
    ),
    Mutant(
        "counted_before_final",
        22,
        "TRL #6439",
        "token_mean",
        "megatron-token",
        ("AGV142",),
        "counted-before-final",
        claims=("rejection",),
        policy=Policy(denominators="post_rejection"),
    ),
    Mutant(
        "remainder_rows_dropped",
        47,
        "SkyRL (token_mean_legacy)",
        "token_mean",
        "sum",
        ("AGV101",),
        "remainder-dropped",
    ),
    Mutant(
        "sample_denominators",
        51,
        "miles FSDP",
        "sample_mean",
        "sum",
        ("AGV101",),
        "sample-denominators",
    ),
)
