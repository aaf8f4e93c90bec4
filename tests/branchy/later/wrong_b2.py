"""The wrong ones of memory, lengths, logs and terms."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.later.base import wrong
from tests.branchy.unread.witness import Witness

MEMORY = (
    wrong(
        "memory_b:tokens_in_the_environment",
        "token_mean",
        "os.environ.setdefault for what changes with every step",
        Witness("11", before=(Witness("1"),)),
        "AGV101 AGV408 state-between-steps",
    ),
    wrong(
        "memory_b:set_up_by_the_first_call",
        "token_mean",
        "a lazy setup that asks the first step for the layout of all, with dynamic batches",
        Witness("1; 11", "0 1", before=(Witness("1"),)),
        "AGV202 AGV203 AGV204 AGV408 state-between-steps counted-where-it-stands another-formula",
    ),
    wrong(
        "memory_b:counts_kept_by_totals",
        "sample_mean",
        "counts cached over PPO epochs, by a key that two steps can share",
        Witness("11 11", before=(Witness("1 111"),)),
        "AGV101 AGV205 AGV408 state-between-steps",
    ),
    wrong(
        "memory_b:most_tokens_so_far",
        "token_mean",
        "a high-water mark for a captured graph, used as the count",
        Witness("1", before=(Witness("11"),)),
        "AGV101 AGV408 state-between-steps",
    ),
    wrong(
        "memory_b:warned_once_of_the_empty",
        "sequence_sum",
        "a warning with a return beside it, which the once-only guard took in",
        Witness("1 0", before=(Witness("1"),)),
        "AGV101 AGV112 AGV407 AGV408 not-repeatable state-between-steps samples-dropped",
    ),
)
BRANCHES = (
    wrong(
        "branches_b:equal_counts_need_no_rows",
        "sample_mean",
        "a fast path for equal counts, which a micro-batch of one sample always has",
        Witness("1; 11", "0 1"),
        "AGV202 AGV203 AGV204 another-mode another-formula",
    ),
    wrong(
        "branches_b:short_ones_as_a_part_of_the_longest",
        "sample_mean",
        "a floor under the count of very short answers, relative to the longest",
        Witness("1 1{16}"),
        "AGV101 AGV202 AGV203 AGV204 AGV205 count-floored another-formula",
    ),
    wrong(
        "branches_b:paired_short_with_long",
        "sample_mean",
        "two samples packed into one row, which is averaged as one",
        Witness("1 11"),
        "AGV101 AGV202 AGV203 AGV204 AGV205 packed-row-as-sequence another-formula",
    ),
    wrong(
        "branches_b:logged_before_it_is_averaged",
        "token_sum",
        "times the accumulation steps, for a logger that now adds up",
        Witness("1; 1", "0 1"),
        "AGV511 AGV513 metric-before-a-rescale wrong-normaliser",
    ),
    wrong(
        "branches_b:logged_over_the_step_each_time",
        "token_mean",
        "a [sum, count] pair with the step's count in every micro-batch",
        Witness("1; 1", "0 1"),
        "AGV511 AGV513 wrong-normaliser",
    ),
    wrong(
        "branches_b:entropy_over_the_rank",
        "token_mean",
        "an entropy bonus averaged per rank, then over ranks",
        Witness("1; 11", "0 | 1", term=0),
        "AGV203 AGV204 AGV207 auxiliary-local-count mean-over-dp-ranks",
    ),
    wrong(
        "branches_b:divergence_of_compared_answers",
        "sample_mean",
        "KL under the filter that drops prompts without an advantage",
        Witness("1; 1 1", term=0),
        "AGV101 AGV207 auxiliary-left-out",
    ),
)
WRONG_B2: tuple[Fresh, ...] = (*MEMORY, *BRANCHES)
