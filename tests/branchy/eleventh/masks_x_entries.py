"""What is known of the reducers about masks and divisors."""

from __future__ import annotations

from tests.branchy.eleventh.base import right, wrong
from tests.branchy.fresh.base import Fresh
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "masks_x:divisors_bounded_by_the_response",
        "sample_mean",
        "sample denominators of slime-like hooks: a defensive min from before rollouts fan out",
        Witness("1/1+1/1"),
        "AGV101 AGV141 AGV142 sample-denominators response-lengths-counted",
    ),
    wrong(
        "masks_x:one_divisor_where_counts_are_equal",
        "sample_mean",
        "fast path for equal lengths in a loss aggregator: equal at hand is taken for equal in all",
        Witness("1/1; 1/11", "0 1"),
        "AGV112 AGV141 AGV202 AGV203 AGV204 AGV205 AGV206 another-mode empty-units-left-out",
    ),
    wrong(
        "masks_x:logged_with_the_count_of_the_mask",
        "token_mean",
        "Megatron-like loss_func that reports [sum, count]: the mask has the model's dtype by then",
        Witness("1/01{257}"),
        "AGV301 AGV511 AGV513 counted-in-16-bits wrong-normaliser",
    ),
    wrong(
        "masks_x:columns_cut_to_the_fullest_row",
        "sequence_sum",
        "trimming of padded rows in TRL-like trainers: from when only padding was masked",
        Witness("1/01"),
        "AGV101 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV206 edge-token-dropped",
    ),
    wrong(
        "masks_x:one_token_left_where_all_are_masked",
        "token_mean",
        "overlong filtering: a fully masked micro-batch gets a token back against empty backwards",
        Witness("1/0"),
        "AGV112 AGV121 AGV123 AGV141 AGV201 AGV202 AGV203 AGV204 AGV205 AGV206 mask-not-applied",
    ),
    wrong(
        "masks_x:places_looked_up_by_length_and_count",
        "token_sum",
        "unpadding as for flash-attn: indices cached by shape, from when responses had no holes",
        Witness("1/10; 1/01"),
        "AGV101 AGV121 AGV123 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV206 AGV405 "
        "AGV408 state-between-steps mask-not-applied",
    ),
    wrong(
        "masks_x:totals_by_bucket_of_length",
        "constant",
        "length buckets for few compiled shapes: half-open ones, and truncation ends on the edge",
        Witness("4095/1"),
        "AGV101 AGV141 AGV142 rows-not-covered remainder-dropped",
    ),
    wrong(
        "masks_x:kl_over_what_tools_leave",
        "prompt_mean",
        "a KL loss with its own mask count in multi-turn recipes: counted where masks are at hand",
        Witness("1/10 1/1", "0 1", term=0),
        "AGV112 AGV141 AGV142 AGV202 AGV203 AGV204 AGV205 AGV206 AGV207 auxiliary-local-count "
        "partial-groups",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "masks_x:columns_cut_behind_the_last_token",
        "sequence_sum",
        "trimming of padded rows in TRL-like trainers, by where tokens stand",
    ),
    right(
        "masks_x:one_divisor_where_the_whole_step_is_equal",
        "sample_mean",
        "fast path for equal lengths that asks the driver's list of the step",
    ),
    right(
        "masks_x:places_looked_up_by_mask",
        "token_sum",
        "unpadding as for flash-attn: indices cached by the mask itself",
    ),
    right(
        "masks_x:turns_between_their_edges",
        "token_mean",
        "turns of agent rollouts cut out of the mask, with a count for the log",
    ),
    right(
        "masks_x:totals_in_chunks_with_their_tail",
        "constant",
        "chunked losses as in liger kernels: whole chunks as rows, and a tail",
    ),
    right(
        "masks_x:kl_over_what_tools_leave_of_the_step",
        "prompt_mean",
        "a KL loss with its own mask count in multi-turn recipes, over the driver's masks",
    ),
)
