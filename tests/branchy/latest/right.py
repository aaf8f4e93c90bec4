"""The right ones: as many branches as the wrong ones have, and right on all of them."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.latest.base import right

KERNELS = (
    right("kernels:windows_side_by_side", "token_mean", "windows that see one token more"),
    right("kernels:gradient_made_with_the_whole_count", "token_mean", "a gradient from forward"),
    right("kernels:scaled_back_by_each_chunk", "sample_mean", "rows in chunks of eight"),
    right("kernels:lanes_beyond_the_end_are_zero", "token_sum", "clamped offsets, then a mask"),
    right("kernels:gradients_watched_by_a_hook", "sequence_sum", "a hook that only looks"),
    right("kernels:last_block_ends_behind_it", "sample_mean", "rows in blocks of 64"),
    right("kernels:autotuned_between_equals", "token_mean", "two kernels that do the same"),
    right("kernels:masks_a_copy_in_place", "token_mean", "masked_fill_ on a copy"),
    right("kernels:long_responses_in_weighed_segments", "sample_mean", "segments by their tokens"),
)
SHAPES = (
    right("shapes:pairs_of_one_shape", "sequence_sum", "two rows at once where they fit"),
    right("shapes:square_matrix_is_divided_by_rows", "sample_mean", "a path for square batches"),
    right("shapes:samples_begin_where_they_are_said_to", "sample_mean", "owners of a stream"),
    right("shapes:starts_of_rows_made_aligned", "prompt_mean", "rows padded for FP8"),
    right("shapes:rows_packed_with_their_length", "token_sum", "masks as bits, row by row"),
    right("shapes:run_lengths_in_sixty_four_bits", "constant", "masks as runs"),
    right("shapes:boundaries_where_ids_change", "sample_mean", "runs of one rollout"),
    right("shapes:places_of_a_sparse_mask", "token_mean", "a path for long tool output"),
    right("shapes:inverted_booleans", "sequence_sum", "masks as bytes, inverted as booleans"),
)
NUMBERS = (
    right("numbers:floor_of_the_dtype", "sample_mean", "a floor that only an empty count meets"),
    right("numbers:weights_as_a_reciprocal", "token_mean", "16-bit losses times a reciprocal"),
    right("numbers:equal_counts_are_one_count", "sample_mean", "one division for equal counts"),
    right("numbers:the_constant_stays", "constant", "responses beyond the constant in parts"),
    right("numbers:shares_as_they_are", "token_mean", "micro-batch means by their share"),
    right("numbers:exactly_zero_where_it_is", "prompt_mean", "an own path for nothing at all"),
    right("numbers:whole_constant_on_every_shard", "constant", "the constant by shards"),
)
GROUPS = (
    right("groups:single_sample_groups_are_groups", "prompt_mean", "groups of one apart"),
    right("groups:greedy_one_is_an_answer", "prompt_mean", "the first of a group apart"),
    right("groups:groups_here_are_sums_of_rows", "prompt_mean", "large groups that are whole"),
    right("groups:one_prompt_weighed_by_ranks", "prompt_mean", "one prompt on all ranks"),
    right("groups:merged_by_addition", "prompt_mean", "gathered counts, added up"),
    right("groups:signs_added_apart", "token_mean", "positive and negative losses apart"),
    right("groups:largest_losses_apart", "token_mean", "the largest hundredth, added back"),
    right("groups:equal_rows_count_twice", "sample_mean", "copies that are only counted"),
    right("groups:one_way_to_count_the_empty", "sample_mean", "rollouts from the step's list"),
)
RANKS = (
    right("ranks:one_gpu_and_one_micro_batch", "token_mean", "own counts of a whole step"),
    right("ranks:counts_of_the_whole_ring", "token_mean", "counts of all shards"),
    right("ranks:short_ones_are_cut_as_well", "token_sum", "samples shorter than their shards"),
    right("ranks:end_token_where_it_is", "token_sum", "the end token by itself"),
    right("ranks:places_in_the_steps_counts", "sample_mean", "counts by the sample's place"),
    right("ranks:gathered_lists_with_their_stride", "sample_mean", "ragged lists, gathered"),
    right("ranks:width_agreed_by_all", "sample_mean", "a width that all ranks agree on"),
    right("ranks:at_least_one_token_in_all", "token_mean", "a floor behind the all-reduce"),
)
STEPS = (
    right("steps:stack_read_from_behind_the_end", "token_mean", "counts from a stack"),
    right("steps:balanced_by_cost_weighted_by_tokens", "token_mean", "batches balanced by cost"),
    right("steps:seen_in_no_default_argument", "sample_mean", "a default argument that is None"),
    right("steps:one_phase_by_tokens_seen", "token_mean", "two phases of one mode"),
    right("steps:divergence_in_every_micro_batch", "sample_mean", "a KL term in a window"),
    right("steps:every_token_of_the_term", "token_mean", "a KL term in two halves"),
    right("steps:logged_over_rollouts_of_the_step", "sequence_sum", "a pair of the whole step"),
    right("steps:graph_kept_by_what_is_masked", "token_mean", "zero with a graph, masked first"),
)
RIGHT: tuple[Fresh, ...] = (*KERNELS, *SHAPES, *NUMBERS, *GROUPS, *RANKS, *STEPS)
