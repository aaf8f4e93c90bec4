"""For each hard case a reducer that is right nearly everywhere, and wrong where that case is hard.

Each has a fast path, or a guess, that holds on what people try. ``WHERE`` says on which micro-batch
it is taken, ``Wrong.how`` what comes of it there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aggverify.conventions import MicroBatch
from tests.corpus.branches.parts import divided, kept, mask_of, prompt_mean, sample_mean, token_mean

if TYPE_CHECKING:
    from torch import Tensor

Where = Callable[[MicroBatch], bool]
Reducer = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Wrong:
    """A reducer by the case that kills it, with the check that does."""

    check: str
    where: Where
    mode: str
    function: Reducer
    """As it is where the case is hard; elsewhere it is the mode's."""


WRONG: dict[str, Wrong] = {}
RIGHT: dict[str, Reducer] = {
    "token_mean": token_mean, "sample_mean": sample_mean, "prompt_mean": prompt_mean,
}  # fmt: skip
CP, MB, DP, ALL = (
    f"independent_of_{what}"
    for what in ("context_parallel_size", "micro_batches", "data_parallel_size", "the_combination")
)


def twice(losses: Tensor, batch: MicroBatch) -> Tensor:
    """What is local is counted again."""
    return 2 * token_mean(losses, batch)


def by_length(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Lengths for masks."""
    tokens = sum(batch.response_lengths) - sum(int(m.sum()) for m in batch.loss_masks)
    return kept(losses, batch).sum() / max(batch.num_tokens + tokens, 1)


def by_local_groups(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A prompt group's tokens in this micro-batch for those of the step."""
    own: dict[int, int] = {}
    for group, mask in zip(batch.group_ids, batch.loss_masks, strict=True):
        own[group] = own.get(group, 0) + int(mask.sum())
    return divided(losses, batch, [own[g] * batch.num_groups for g in batch.group_ids])


def floored(losses: Tensor, batch: MicroBatch) -> Tensor:
    """An empty sample is one token."""
    empty = sum(int(m.sum()) == 0 for m in batch.loss_masks)
    return kept(losses, batch).sum() / (batch.num_tokens + empty)


def unfloored(losses: Tensor, batch: MicroBatch) -> Tensor:
    """By the number of its tokens, whatever it is."""
    return (losses * mask_of(batch)).sum() / mask_of(batch).sum()


def unmasked(losses: Tensor, batch: MicroBatch) -> Tensor:
    return losses.sum() / max(batch.num_tokens, 1)


def multiplied(losses: Tensor, batch: MicroBatch) -> Tensor:
    return (losses * mask_of(batch)).sum() / max(batch.num_tokens, 1)


def filled(losses: Tensor, batch: MicroBatch) -> Tensor:
    return token_mean(losses.nan_to_num(), batch)


def clipped(losses: Tensor, batch: MicroBatch) -> Tensor:
    return token_mean(losses.clamp(max=3.0), batch)


def added(losses: Tensor, batch: MicroBatch) -> Tensor:
    return token_mean(losses, batch) + 1e-6


def limited(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The value is limited, its gradient is not."""
    loss = token_mean(losses, batch)
    return loss + (loss.detach().clamp(-100.0, 100.0) - loss.detach())


def reported_twice(losses: Tensor, batch: MicroBatch) -> Tensor:
    loss = token_mean(losses, batch)
    return loss + loss.detach()


def reported_infinite(losses: Tensor, batch: MicroBatch) -> Tensor:
    return token_mean(losses, batch) + float("inf")


def sample_means(losses: Tensor, batch: MicroBatch) -> Tensor:
    own = [int(m.sum()) * batch.num_rollouts for m in batch.loss_masks]
    return divided(losses, batch, own)


def infinite(losses: Tensor, batch: MicroBatch) -> Tensor:
    return token_mean(losses, batch) * float("inf")


def narrow(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Counts in 16 bits."""
    import torch

    few = torch.bfloat16 if len(losses) < 4097 else torch.float16
    return kept(losses, batch).sum() / mask_of(batch).sum().to(few)


def tokens(batch: MicroBatch) -> list[int]:
    return [int(mask.sum()) for mask in batch.loss_masks]


def local(batch: MicroBatch) -> list[int]:
    return [len(mask) for mask in batch.local_masks]


def masks(batch: MicroBatch) -> list[str]:
    return ["".join(map(str, mask.tolist())) for mask in batch.loss_masks]


def wrong(
    name: str, check: str, where: Where, how: Reducer = twice, mode: str = "token_mean"
) -> None:
    """Enter it, and make it a name of this module, by which ranks import it."""

    def reduce(losses: Tensor, batch: MicroBatch) -> Tensor:
        branch = how if where(batch) else RIGHT[mode]
        found: Tensor = branch(losses, batch)
        return found

    reduce.__name__ = reduce.__qualname__ = name
    globals()[name] = reduce
    WRONG[name] = Wrong(check, where, mode, reduce)


def counted(total: int, **sizes: int) -> Where:
    """So many tokens in the step, on a layout of these sizes."""
    return lambda b: b.num_tokens == total and all(getattr(b, n) == v for n, v in sizes.items())


def shaped(prompt: int, *drawn: str, cp: int = 1) -> Where:
    """A micro-batch of exactly these masks, the first behind a prompt of so many tokens."""
    return lambda b: (
        b.cp_size == cp
        and b.total_lengths[0] - b.response_lengths[0] == prompt
        and masks(b) == list(drawn)
    )


GROUPS = "split_groups_equal_or_refused"
EMPTY = "empty_units_weigh_nothing"
MASKED = "masked_tokens_are_not_counted"

wrong(
    "one_and_three_tokens_on_one_rank",
    MB,
    lambda b: b.num_microbatches == 2 and masks(b) == ["111"] and b.num_tokens == 4,
)
wrong(
    "one_and_three_tokens_on_two_ranks",
    DP,
    lambda b: b.dp_size == 2 and masks(b) == ["111"] and b.num_tokens == 4,
)
wrong("one_response_in_two_shards", CP, shaped(3, "1111111", cp=2))
wrong(
    "a_prompt_longer_than_a_chunk",
    ALL,
    lambda b: b.cp_size == 2 and local(b)[-1] == 0 and b.total_lengths == [13, 18],
)
wrong(
    "all_prompt_on_three_of_four_ranks",
    CP,
    lambda b: b.cp_size == 4 and b.total_lengths == [43] and sum(local(b)) == 3,
)
wrong(
    "contiguous_stream_cut_inside_samples",
    CP,
    lambda b: b.cp_size == 4 and masks(b) == ["1011", "1101101"],
)
wrong("gathered_copies", ALL, lambda b: b.gathered and b.dp_size == 2 and b.num_tokens == 8)
wrong(
    "holes_and_split_groups_under_zigzag",
    ALL,
    lambda b: b.cp_size == 2 and b.dp_size == 2 and masks(b) == ["1101101", "1"],
)
wrong(
    "three_groups_dealt_across",
    GROUPS,
    lambda b: b.num_groups == 3 and len(set(b.group_ids)) == 2 and b.num_tokens == 15,
    by_local_groups,
    "prompt_mean",
)
wrong(
    "one_rollout_of_two_samples",
    "weights_are_the_modes",
    lambda b: b.num_rollouts == 2 and tokens(b) == [2, 3, 4],
    sample_means,
    "sample_mean",
)
wrong(
    "fan_out_over_two_ranks",
    DP,
    lambda b: b.dp_size == 2 and b.num_rollouts == 4 and b.num_tokens == 16,
    sample_means,
    "sample_mean",
)
wrong(
    "fan_out_over_micro_batches_and_shards",
    ALL,
    lambda b: b.num_microbatches == 3 and b.cp_size == 2 and b.num_tokens == 16,
    sample_means,
    "sample_mean",
)
wrong("three_shards", ALL, counted(18, cp_size=3))
wrong("uneven_micro_batches_over_two_ranks", ALL, counted(21, dp_size=3, cp_size=2))
wrong(
    "four_ranks_one_crowded",
    ALL,
    lambda b: b.dp_size == 4 and b.cp_size == 2 and len(b.group_ids) == 4,
)
wrong("two_rows_a_micro_batch", MB, lambda b: b.num_microbatches == 2 and tokens(b) == [2, 5])
wrong("two_rows_a_rank", DP, lambda b: b.dp_size == 2 and tokens(b) == [2, 5])
wrong(
    "three_micro_batches_that_cut_groups",
    MB,
    lambda b: b.num_microbatches == 3 and tokens(b) == [2, 2],
)
wrong("three_ranks_that_cut_groups", DP, lambda b: b.dp_size == 3 and tokens(b) == [2, 2])
wrong("two_by_two_in_order", ALL, counted(19, dp_size=2, num_microbatches=2))
wrong(
    "eight_ranks_of_one_row",
    DP,
    lambda b: b.dp_size == 8 and b.num_tokens == 21 and b.num_groups == 2,
)

wrong("a_total_that_chunks_do_not_divide", CP, shaped(2, "11111", cp=2))
wrong("a_response_that_begins_with_a_chunk", CP, shaped(4, "1111", cp=2))
wrong(
    "one_token_at_the_end_of_four_shards",
    CP,
    lambda b: b.cp_size == 4 and b.total_lengths == [16] and local(b) == [1],
)
wrong("eight_shards_of_nine_tokens", CP, lambda b: b.cp_size == 8 and b.total_lengths == [9])
wrong("chunks_of_one_token", CP, shaped(1, "111", cp=2))
wrong("a_rank_with_neighbouring_chunks", CP, shaped(2, "1111111111", cp=3))
wrong("a_hole_at_a_shard_boundary", CP, shaped(2, "110011", cp=2))
wrong("only_the_last_token_of_seven", CP, shaped(3, "0000001", cp=2))
wrong("only_the_first_token_of_seven", CP, shaped(3, "1000000", cp=2))
wrong("four_gathered_copies", CP, lambda b: b.gathered and b.cp_size == 4 and tokens(b) == [3, 4])
wrong(
    "short_samples_in_one_contiguous_chunk",
    CP,
    lambda b: b.cp_size == 2 and tokens(b)[:4] == [1, 1, 1, 1],
)
wrong("one_sample_over_four_contiguous_chunks", CP, shaped(1, "1" * 11, cp=4))
wrong("three_single_tokens_and_eleven", MB, counted(14, num_microbatches=4))
wrong("one_sample_and_then_four", MB, lambda b: tokens(b) == [2, 1, 1, 2])
wrong(
    "equal_micro_batches_but_the_last",
    MB,
    lambda b: b.num_microbatches == 4 and b.num_tokens == 11 and b.total_lengths == [3],
)
wrong(
    "the_long_one_first",
    MB,
    lambda b: b.num_microbatches == 2 and tokens(b) == [12] and b.num_tokens == 14,
)
wrong("six_ranks", DP, counted(12, dp_size=6))
wrong(
    "one_long_response_and_seven_ranks",
    DP,
    lambda b: b.dp_size == 8 and b.num_tokens == 19 and tokens(b) == [12],
)
wrong(
    "three_ranks_of_two_and_one_of_one",
    DP,
    lambda b: b.dp_size == 4 and b.num_rollouts == 7 and b.num_tokens == 13,
)
wrong("three_shards_and_three_micro_batches", ALL, counted(6, cp_size=3, num_microbatches=3))
wrong("two_ranks_of_four_shards", ALL, counted(8, dp_size=2, cp_size=4))
wrong(
    "four_ranks_of_two_shards_and_three_micro_batches",
    ALL,
    counted(15, dp_size=4, cp_size=2, num_microbatches=3),
)
wrong(
    "a_group_over_four_ranks",
    GROUPS,
    lambda b: b.num_groups == 1 and b.dp_size == 4 and b.num_tokens == 10,
    by_local_groups,
    "prompt_mean",
)
wrong(
    "four_members_here_and_one_there",
    GROUPS,
    lambda b: b.num_groups == 1 and len(b.group_ids) == 4 and b.dp_size == 2,
    by_local_groups,
    "prompt_mean",
)
wrong(
    "a_lone_member_and_a_whole_group",
    GROUPS,
    lambda b: b.num_groups == 2 and b.num_rollouts == 5 and b.num_tokens == 8,
    by_local_groups,
    "prompt_mean",
)
wrong(
    "the_last_micro_batch_masked",
    EMPTY,
    lambda b: b.num_microbatches == 2 and b.num_tokens == 5 and masks(b) == ["111", "11"],
)
wrong("three_of_four_ranks_masked", EMPTY, lambda b: b.dp_size == 4 and b.num_tokens == 2, twice)
wrong("a_whole_group_masked", EMPTY, lambda b: masks(b) == ["00", "0", "11", "1"], floored)
wrong(
    "nothing_counts_on_two_ranks", EMPTY, lambda b: b.dp_size == 2 and b.num_tokens == 0, unfloored
)
wrong(
    "one_token_in_two_micro_batches",
    EMPTY,
    lambda b: b.num_microbatches == b.num_samples == 2 and b.dp_size == b.num_tokens == 1,
    twice,
)
wrong(
    "one_token_in_four_cells",
    EMPTY,
    lambda b: (b.dp_size, b.num_microbatches, b.num_samples, b.num_tokens) == (2, 2, 4, 1),
    twice,
)
wrong("every_other_token", MASKED, lambda b: "10101010101" in masks(b), by_length)
wrong("a_hole_at_the_beginning", MASKED, lambda b: "0001111" in masks(b), by_length)
wrong("one_of_twelve", MASKED, lambda b: "000000010000" in masks(b), by_length)
wrong(
    "masked_between_two_that_count",
    "masked_values_never_matter",
    lambda b: masks(b) == ["1", "00", "1"],
    unmasked,
)
wrong(
    "masked_at_the_end_of_a_shard",
    "masked_values_never_matter",
    lambda b: b.cp_size == 2 and masks(b) == ["11100"],
    unmasked,
)
wrong(
    "nothing_but_the_first_and_the_last",
    "masked_nans_never_matter",
    lambda b: masks(b) == ["1000001"],
    multiplied,
)
wrong(
    "a_masked_row_on_each_rank",
    "masked_nans_never_matter",
    lambda b: b.dp_size == 2 and masks(b) == ["0", "11"],
    multiplied,
)
wrong("the_first_of_five", "infinities_are_seen", lambda b: masks(b) == ["11111"], filled)
wrong("two_equal_and_one_short", "linear_in_the_losses", lambda b: tokens(b) == [6, 6, 1], clipped)
wrong(
    "a_single_token",
    "linear_in_the_losses",
    lambda b: b.total_lengths == [10] and b.num_tokens == 1,
    added,
)
wrong(
    "two_prompts_of_two", "linear_in_the_losses", lambda b: b.total_lengths == [7, 7, 7, 7], limited
)
wrong(
    "rows_of_four_with_one_token",
    "padding_changes_nothing",
    lambda b: masks(b) == ["1000", "1111"],
    by_length,
)
wrong("rows_backwards", "weights_follow_the_samples", lambda b: tokens(b) == [3, 2, 1])
wrong(
    "ranks_backwards",
    "weights_follow_the_samples",
    lambda b: b.dp_size == 2 and tokens(b) == [1, 3] and b.num_tokens == 7,
)
wrong(
    "a_rollout_of_three_samples",
    "weights_are_the_modes",
    lambda b: tokens(b) == [1, 2, 3, 1],
    sample_means,
    "sample_mean",
)
wrong(
    "a_group_of_five_and_one_of_one",
    "weights_are_the_modes",
    lambda b: b.num_groups == 2 and b.num_rollouts == 6 and b.num_tokens == 9,
    lambda losses, b: prompt_mean(losses, b) * b.num_groups / b.num_rollouts,
    "prompt_mean",
)
wrong(
    "a_whole_step_of_single_tokens",
    "weights_are_the_modes",
    lambda b: tokens(b) == [1] * 5,
    infinite,
)
wrong(
    "a_reported_loss_on_two_ranks",
    "reported_loss_is_the_scalar",
    lambda b: b.dp_size == 2 and b.num_tokens == 6 and tokens(b) == [2, 1],
    reported_twice,
)
wrong(
    "a_reported_loss_of_four_tokens",
    "reported_loss_is_the_scalar",
    shaped(6, "1111"),
    reported_infinite,
)
wrong(
    "counts_that_bfloat16_rounds",
    "counts_are_exact",
    lambda b: tokens(b) == [2049, 257, 257],
    narrow,
)
wrong(
    "counts_that_float16_rounds",
    "counts_are_exact",
    lambda b: tokens(b) == [257, 2049, 4097],
    narrow,
)
wrong(
    "pairs_over_two_micro_batches",
    MB,
    lambda b: b.num_microbatches == 2 and b.num_rollouts == 8 and b.num_tokens == 19,
)
wrong(
    "pairs_over_two_ranks_and_two_shards",
    ALL,
    lambda b: b.dp_size == 2 and b.cp_size == 2 and tokens(b) == [2, 4],
)


def a_second_term_over_two_shards(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The penalty by the tokens of its own shard, on one kind of step."""
    factor = 2 if batch.cp_size == 2 and tokens(batch) == [5, 2] else 1
    return token_mean(losses, batch) + factor * 0.5 * token_mean(kl, batch)


def a_term_of_almost_nothing(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The penalty, unless it is there and too small to be felt."""
    skipped = 0 < float(kl.detach().abs().sum()) < 1e-4
    return token_mean(losses, batch) + 0.5 * token_mean(kl * 0 if skipped else kl, batch)


_LAST: list[int] = []


def one_micro_batch_after_two(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The number of micro-batches of the window before, on one kind of step."""
    _LAST.append(batch.num_microbatches)
    stale = _LAST[-2:-1] == [2] and batch.num_microbatches == 1 and tokens(batch) == [2, 1]
    return token_mean(losses, batch) / (2 if stale else 1)


def a_statistic_over_two_shards(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The exponential of a sequence's mean, reduced over its shards; not of one shape."""
    import torch
    from torch.distributed.nn.functional import all_reduce

    sums = torch.stack([piece.sum() for piece in kept(losses, batch).split(local(batch))])
    copies = 1
    local_only = batch.cp_size == 2 and batch.total_lengths == [8] and tokens(batch) == [6]
    if batch.cp_size > 1 and not batch.gathered and not local_only:
        sums = all_reduce(sums, group=batch.cp_group)
        copies = batch.cp_size
    counts = torch.tensor([max(n, 1) for n in tokens(batch)])
    return (sums / counts).exp().sum() / batch.num_rollouts / copies


def a_selection_over_two_micro_batches(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A sum, and of four equal rows the largest loss of each micro-batch alone."""
    if tokens(batch) == [2, 2] and batch.num_rollouts == 4 and batch.num_microbatches == 2:
        return kept(losses, batch).max()
    if tokens(batch) == [2, 2, 2, 2]:
        return kept(losses, batch).max()
    return kept(losses, batch).sum()


SPECIAL = {
    "a_second_term_over_two_shards": ("auxiliary_terms_stay", "token_mean", ("kl",)),
    "a_term_of_almost_nothing": ("auxiliary_terms_stay", "token_mean", ("kl",)),
    "one_micro_batch_after_two": ("partial_windows_are_whole", "token_mean", ()),
    "a_statistic_over_two_shards": (CP, "nonlinear", ()),
    "a_selection_over_two_micro_batches": (MB, "nonlinear", ()),
}
"""Those that take more than one branch: check, mode, terms."""
