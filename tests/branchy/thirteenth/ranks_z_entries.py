"""What is said of the reducers in ``ranks_z``."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.thirteenth.base import right

WRONG: tuple[Fresh, ...] = ()

RIGHT: tuple[Fresh, ...] = (
    right(
        "ranks_z:tokens_counted_while_the_window_opens",
        "token_mean",
        "accumulation windows (NeMo-RL, prime-rl): the count's all-reduce overlaps the first sum",
    ),
    right(
        "ranks_z:shards_joined_for_the_first_of_them",
        "prompt_mean",
        "differentiable all-reduces over context parallelism (GSPO in slime), one rank hands in",
    ),
    right(
        "ranks_z:bins_read_back_at_their_coordinates",
        "sample_mean",
        "packing into rows of a token budget (verl, NeMo-RL), undone by the same coordinates",
    ),
    right(
        "ranks_z:whole_sum_logged_by_the_first_shard",
        "sequence_sum",
        "metrics of whole samples gathered over context parallelism, logged by one of its ranks",
    ),
    right(
        "ranks_z:budget_that_all_ranks_were_told",
        "constant",
        "a decorator that compares the step's numbers on all ranks by one MAX of them and of minus"
        " them",
    ),
    right(
        "ranks_z:summed_as_the_layout_cuts",
        "token_sum",
        "per-layout walks (zigzag, contiguous, gathered) chosen from a table, for policy and KL",
    ),
    right(
        "ranks_z:told_by_a_table_of_the_world",
        "token_mean",
        "all_gather_object of uneven ranks' numbers, with sum and count logged to be merged",
    ),
    right(
        "ranks_z:rollouts_sent_by_the_leading_rank",
        "sample_mean",
        "the driver's numbers broadcast to all ranks; padded rows where samples are alike",
    ),
)
