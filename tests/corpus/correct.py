"""Right reducers, each written in a way that a careless verifier would call wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.base import Correct
from tests.corpus.parts import kept, over, sums, total, weighted

if TYPE_CHECKING:
    from torch import Tensor


def other_order(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = [x for piece in reversed(sums(losses, batch)) for x in (piece,)]
    scale = 1 / max(batch.num_tokens, 1)
    return total(v * scale for v in values)


def single_precision_constant(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    return kept(losses, batch).sum() * (1.0 / torch.tensor(max(batch.num_tokens, 1)))


def single_precision_counts(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    counts = torch.tensor(batch.rollout_tokens).float().clamp(min=1) * batch.num_rollouts
    return weighted(losses, batch, list(counts))


def counts_over_the_groups(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Needs every rank of the context-parallel group to get here, tokens or not."""
    owned = sum(len(mask) for mask in batch.local_masks)
    seen = over(batch.cp_group, owned)
    assert seen >= owned
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def cumulative(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    lengths = torch.tensor([len(mask) for mask in batch.local_masks])
    ends = lengths.cumsum(0)
    sample = torch.searchsorted(ends, torch.arange(len(losses)), right=True)
    counts = torch.tensor(batch.group_tokens).clamp(min=1).double()[sample]
    return (kept(losses, batch) / counts).sum() / batch.num_groups


def selected_on_both_sides(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    mask = torch.cat(batch.local_masks).bool()
    inside = torch.where(mask, losses, torch.zeros_like(losses))
    return torch.where(mask, inside / max(batch.num_tokens, 1), 0.0).sum()


def double_precision(losses: Tensor, batch: MicroBatch) -> Tensor:
    counts = [max(n, 1) * batch.num_groups for n in batch.group_tokens]
    return weighted(losses.double(), batch, counts)


def token_by_token(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    loss = losses[:0].sum().double()
    start = 0
    for mask, count in zip(batch.local_masks, batch.rollout_tokens, strict=True):
        for t in mask.nonzero().flatten().tolist():
            loss = loss + losses[start + t] / count / batch.num_rollouts
        start += len(mask)
    assert isinstance(loss, torch.Tensor)
    return loss


def dot_product(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    weights = [
        mask / (max(n, 1) * batch.num_rollouts)
        for mask, n in zip(batch.local_masks, batch.rollout_tokens, strict=True)
    ]
    return kept(losses, batch).double() @ torch.cat(weights).double()


def negative_zero(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    mask = torch.cat(batch.local_masks).bool()
    weights = torch.where(mask, -1.0 / max(batch.num_tokens, 1), -0.0).double()
    return -(torch.where(mask, losses, -0.0) * weights).sum()


def compressed(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    mask = torch.cat(batch.local_masks).bool()
    return torch.masked_select(losses, mask).sum() / ((batch.divisor or 1.0) * batch.num_rollouts)


def average_undone(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed as dist

    world = dist.get_world_size()
    return kept(losses, batch).sum() / max(batch.num_tokens, 1) * world


def accumulation_undone(losses: Tensor, batch: MicroBatch) -> Tensor:
    share = weighted(losses, batch, [max(n, 1) for n in batch.group_tokens]) / batch.num_groups
    return share * batch.num_microbatches * batch.dp_size * batch.cp_size


def count_in_three_parts(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    counts = [int(mask.sum()) for mask in batch.loss_masks]
    return total(sums(losses, batch)), sum(counts[::2]) + sum(counts[1::2])


def scatter_added(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    lengths = torch.tensor([len(mask) for mask in batch.local_masks])
    sample = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    zeros = losses.new_zeros(len(lengths), dtype=torch.float64)  # in bfloat16 a long sum stalls
    per_sample = zeros.index_add(0, sample, kept(losses, batch).double())
    return (per_sample / torch.tensor(batch.rollout_tokens).clamp(min=1)).sum()


def whole_groups_only(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Equal or loud: says no to a group of which only a part is here."""
    here = dict.fromkeys(batch.group_ids, 0)
    for group, mask in zip(batch.group_ids, batch.loss_masks, strict=True):
        here[group] += int(mask.sum())
    counts = [here[group] for group in batch.group_ids]
    assert counts == batch.group_tokens, "a prompt group must be whole in one micro-batch"
    return weighted(losses, batch, [max(n, 1) * batch.num_groups for n in counts])


def counts_what_was_there(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, int]:
    """Tokens rejected after the fact stay in the denominator."""
    return kept(losses, batch).sum(), sum(int(mask.sum()) for mask in batch.original_masks)


def two_more_terms(losses: Tensor, batch: MicroBatch, kl: Tensor, entropy: Tensor) -> Tensor:
    """Each term with a coefficient and a normaliser of its own."""
    policy = weighted(losses, batch, [max(n, 1) * batch.num_rollouts for n in batch.rollout_tokens])
    penalty = kept(kl, batch).sum() / max(batch.num_tokens, 1)
    return policy + 0.04 * penalty - 0.001 * kept(entropy, batch).sum() / batch.num_rollouts


def term_where_something_is_unmasked(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The policy loss keeps the graph where the penalty is left out."""
    policy = kept(losses, batch).sum()
    if any(bool(mask.any()) for mask in batch.local_masks):
        policy = policy + 0.125 * kept(kl, batch).sum()
    return policy / max(batch.num_tokens, 1)


def normaliser_over_the_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Exact on one rank; rounded where the number of ranks is no power of two."""
    import torch

    ranks = batch.dp_size * batch.cp_size
    share = torch.tensor(batch.num_tokens).clamp(min=1.0) / ranks
    return kept(losses, batch).sum() / share / ranks


def share_of_the_micro_batches(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Exact unless the number of micro-batches is no power of two."""
    import torch

    scale = 1.0 / torch.tensor(batch.num_microbatches)
    whole = weighted(losses, batch, [max(n, 1) * batch.num_groups for n in batch.group_tokens])
    return whole * scale * batch.num_microbatches


def differences_of_running_sums(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A token's weight has the roundings of the larger weights of the samples behind it."""
    import torch

    ends = torch.tensor([len(mask) for mask in batch.local_masks]).cumsum(0)
    running = torch.cat([losses.new_zeros(1).double(), kept(losses, batch).double().cumsum(0)])
    sums = running[ends].diff(prepend=running[:1])
    counts = torch.tensor(batch.rollout_tokens).clamp(min=1).double() * batch.num_rollouts
    return (sums / counts).sum()


def differences_in_the_losses_dtype(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The same with running sums in whatever the losses are in, and no less than float32."""
    import torch

    wide = torch.promote_types(losses.dtype, torch.float32)
    ends = torch.tensor([len(mask) for mask in batch.local_masks]).cumsum(0)
    running = torch.cat([losses.new_zeros(1, dtype=wide), kept(losses, batch).to(wide).cumsum(0)])
    sums = running[ends].diff(prepend=running[:1])
    counts = torch.tensor(batch.rollout_tokens).clamp(min=1).to(wide) * batch.num_rollouts
    return (sums / counts).sum()


def shares_from_a_running_sum(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Each sample's share of the step is the difference of two running sums of shares."""
    import torch

    wide = torch.promote_types(losses.dtype, torch.float32)
    counts = [max(n, 1) * batch.num_rollouts for n in batch.rollout_tokens]
    running = torch.tensor([0.0] + [1 / n for n in counts], dtype=wide).cumsum(0)
    pieces = torch.split(kept(losses, batch).to(wide), [len(mask) for mask in batch.local_masks])
    sums = torch.stack([piece.sum() for piece in pieces])
    return (sums * running.diff()).sum()


def value_by_way_of_the_sum(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The reported mean has the roundings of the sum it is made from."""
    whole = kept(losses, batch).sum()
    mean = whole / max(batch.num_tokens, 1)
    return mean + (whole + (mean - whole) - mean).detach()


def sorted_first(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    return values[values.detach().argsort()].sum()


def get_pg_loss_reducer(
    total_lengths: list[int],
    response_lengths: list[int],
    loss_masks: list[Tensor],
    calculate_per_token_loss: bool = False,
) -> object:
    """A hook that finds its shard by asking, for every token, which rank its logit is on."""
    import torch
    from megatron.core import mpu  # type: ignore[import-not-found, unused-ignore]

    size, rank = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
    local, counts = [], []
    for total_length, length, mask in zip(total_lengths, response_lengths, loss_masks, strict=True):
        chunk = -(-total_length // (2 * size))
        logits = torch.arange(length) + total_length - length - 1
        part = torch.div(logits, chunk, rounding_mode="floor")
        mine = (part == rank) | (part == 2 * size - 1 - rank)
        local.append(mask[mine] if size > 1 else mask)
        counts.append(mask.sum().clamp(min=1))

    def reduce(losses: Tensor) -> Tensor:
        kept_losses = torch.where(torch.cat(local).bool(), losses, 0.0)
        pieces = torch.split(kept_losses, [len(mask) for mask in local])
        return torch.stack([p.sum() / n for p, n in zip(pieces, counts, strict=True)]).sum()

    return reduce


def row_means_weighted_by_rows(losses: Tensor, batch: MicroBatch) -> Tensor:
    """What EasyR1's sequence mean should be."""
    rows = len(batch.rollout_ids)
    mean = weighted(losses, batch, [max(n, 1) * rows for n in batch.rollout_tokens])
    return mean * (rows / batch.num_rollouts)


def single_precision_divisor(losses: Tensor, batch: MicroBatch) -> Tensor:
    """No step is exact in float32 where the divisor is no power of two."""
    assert batch.divisor is not None
    return kept(losses, batch).float().sum() / batch.divisor / max(batch.num_rollouts, 1)


def single_precision_seven(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The same with the divisor in the code."""
    return kept(losses, batch).float().sum() / 7 / max(batch.num_rollouts, 1)


CORRECT = (
    Correct("other_order", "adds in another order", "token_mean", "sum"),
    Correct("single_precision_constant", "a reciprocal in float32", "token_mean", "sum"),
    Correct("single_precision_divisor", "L in float32", "constant", "sum", divisor=7.0),
    Correct("single_precision_seven", "its own L in float32", "constant", "sum", divisor=7.0),
    Correct("single_precision_counts", "counts in float32", "sample_mean", "sum"),
    Correct("counts_over_the_groups", "a collective of its own", "token_mean", "sum"),
    Correct("cumulative", "vectorised over ragged pieces", "prompt_mean", "sum"),
    Correct("selected_on_both_sides", "torch.where twice", "token_mean", "sum"),
    Correct("double_precision", "returns float64 whatever comes", "prompt_mean", "sum"),
    Correct("token_by_token", "a loop; an empty sum on some ranks", "sample_mean", "sum"),
    Correct("dot_product", "precomputed weights", "sample_mean", "sum"),
    Correct("negative_zero", "-0.0 behind the mask", "token_mean", "sum"),
    Correct("compressed", "selects before it adds", "constant", "sum", divisor=16.0),
    Correct("average_undone", "asks torch for the world size", "token_mean", "mean"),
    Correct("accumulation_undone", "undoes everything", "prompt_mean", "accumulated-mean"),
    Correct("count_in_three_parts", "returns its own count", "token_mean", "megatron-token"),
    Correct("scatter_added", "index_add over samples", "sample_mean", "megatron-sample"),
    Correct("whole_groups_only", "refuses split groups", "prompt_mean", "sum"),
    Correct(
        "counts_what_was_there",
        "masks differ from what it counts",
        "token_mean",
        "megatron-token",
        claims=("rejection",),
    ),
    Correct("term_where_something_is_unmasked", "a term is skipped", "token_mean", "sum"),
    Correct("row_means_weighted_by_rows", "local means, shared by rows", "sample_mean", "sum"),
    Correct("two_more_terms", "terms have other normalisers", "sample_mean", "sum"),
    Correct("normaliser_over_the_ranks", "a share in float32, TRL's", "token_mean", "sum"),
    Correct("share_of_the_micro_batches", "1/K in float32", "prompt_mean", "sum"),
    Correct("differences_in_the_losses_dtype", "the same in float32", "sample_mean", "sum"),
    Correct("shares_from_a_running_sum", "1/n as a difference", "sample_mean", "sum"),
    Correct("differences_of_running_sums", "sums of others in float64", "sample_mean", "sum"),
    Correct("value_by_way_of_the_sum", "a value behind detach", "token_mean", "sum"),
    Correct("sorted_first", "adds in order of size", "token_sum", "sum"),
    Correct(
        "get_pg_loss_reducer", "owner asked per token", "sample_mean", "megatron-sample", "slime"
    ),
)
