"""Reducers about masks and divisors, and where each is met."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.thirteenth.base import right

WRONG: tuple[Fresh, ...] = ()

RIGHT: tuple[Fresh, ...] = (
    right(
        "masks_z:trained_cells_of_a_sparse_grid",
        "sample_mean",
        "agents whose tool output is most of a response: trained tokens as a sparse matrix",
    ),
    right(
        "masks_z:two_responses_to_a_row",
        "prompt_mean",
        "packing without a bin packer: a long response and a short one share a padded row",
    ),
    right(
        "masks_z:words_of_eight_tokens",
        "token_mean",
        "masks shipped as bits, whose words are full or empty mostly, and [sum, count] logs",
    ),
    right(
        "masks_z:spans_found_in_bytes",
        "sequence_sum",
        "multi-turn rollouts kept as spans of assistant tokens, found by a regular expression",
    ),
    right(
        "masks_z:mantissa_and_exponent_of_the_divisor",
        "constant",
        "Dr.GRPO with a divisor of any number, divided so that powers of two round nothing",
    ),
    right(
        "masks_z:both_terms_selected_at_once",
        "token_sum",
        "a KL penalty beside the policy loss, both compressed by one mask before the sum",
    ),
    right(
        "masks_z:samples_of_one_exact_share",
        "prompt_mean",
        "weights kept as exact fractions, so that equal ones are found and divided once",
    ),
    right(
        "masks_z:jagged_sums_between_offsets",
        "sample_mean",
        "jagged layouts of trained tokens with offsets, reduced by segment_reduce",
    ),
)
