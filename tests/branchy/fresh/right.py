"""The right ones: as many branches as the wrong ones have, and right on all of them."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh, right

FUSED = (
    right("fused:recomputed_with_its_own_scale", "sample_mean", "checkpointed rows"),
    right("fused:saved_as_it_is", "sample_mean", "saved tensors offloaded to the host"),
    right("fused:grid_of_the_longest_row", "sequence_sum", "a grid of rows and blocks"),
    right("fused:running_sum_with_its_graph", "token_mean", "a running sum beside a NaN check"),
    right("fused:backward_with_the_mask", "token_mean", "a masked sum with its own backward"),
    right(
        "fused:workspace_of_each_chunk", "sample_mean", "weights that are not copied for backward"
    ),
    right("fused:zero_is_a_loss_too", "sample_mean", "backward is spared where all is masked"),
    right("fused:zero_with_a_graph", "token_sum", "an early return for an empty micro-batch"),
)
INDEXING = (
    right("indexing:chunks_as_they_are", "sample_mean", "rows and counts cut by tensor_split"),
    right("indexing:slices_by_what_is_here", "sample_mean", "masked_select, and cut again"),
    right("indexing:one_column_of_rows", "sample_mean", "row sums with keepdim over a column"),
    right("indexing:accumulated_by_index", "prompt_mean", "index_put with accumulate"),
    right("indexing:mean_of_what_is_scattered", "sample_mean", "scatter_reduce without the zero"),
    right("indexing:sum_of_an_empty_segment", "sample_mean", "segment_reduce with empty segments"),
    right("indexing:padded_on_one_side", "token_sum", "left-padded rows and masks"),
    right("indexing:first_token_of_its_own", "prompt_mean", "searchsorted among the ends"),
    right(
        "indexing:groups_as_rows_if_they_are", "prompt_mean", "a view where prompts stand together"
    ),
    right("indexing:denominators_interleaved", "prompt_mean", "repeat_interleave for equal groups"),
    right("indexing:sum_over_padded_rows", "sample_mean", "rows padded to a multiple of four"),
    right("indexing:buckets_weighed_by_tokens", "token_mean", "length buckets by torch.bucketize"),
    right("indexing:sample_that_overflows_is_next", "token_mean", "bins of a token budget"),
)
ROLLOUTS = (
    right("rollouts:last_one_ends_it", "token_mean", "rows cut behind their last unmasked token"),
    right("rollouts:prefix_if_it_is_one", "constant", "a slice for masks without a hole"),
    right("rollouts:turns_up_to_their_end", "token_sum", "turns by first and last token"),
    right("rollouts:rollouts_of_all_rows", "sample_mean", "an own path without fan-out"),
    right("rollouts:every_sample_of_the_rollout", "sample_mean", "rollouts counted at hand"),
    right("rollouts:groups_counted_where_whole", "prompt_mean", "prompts counted in the window"),
    right("rollouts:dummies_known_by_their_mask", "sequence_sum", "fully masked rows are skipped"),
    right("rollouts:copies_known_by_their_place", "sample_mean", "copies of a row count once"),
    right(
        "rollouts:counts_found_where_they_agree", "sample_mean", "rollouts of one length at once"
    ),
    right("rollouts:every_turn_of_later_samples", "token_mean", "rollouts that go on in a sample"),
)
WORLDS = (
    right("worlds:groups_named_by_all_ranks", "prompt_mean", "names of prompts, gathered"),
    right("worlds:gathered_tokens_counted_once", "token_mean", "counts over shards, not copies"),
    right("worlds:counts_over_replicas", "token_mean", "counts over data-parallel ranks"),
    right("worlds:rest_is_where_it_is", "sample_mean", "a rank's share where it divides"),
    right("worlds:tokens_told_by_the_first_rank", "token_mean", "a sum that is broadcast"),
    right("worlds:empty_micro_batches_left_out", "token_mean", "a mean over equal micro-batches"),
    right("worlds:average_of_the_window_as_it_is", "token_mean", "average counts that divide"),
    right("worlds:chunks_of_this_world", "token_sum", "own zigzag chunks, compared before use"),
    right("worlds:shards_weighed_by_their_tokens", "sample_mean", "shard means by their tokens"),
    right("worlds:factor_of_both_schedules", "sequence_sum", "factors that are taken off again"),
    right("worlds:replicas_from_the_launcher", "prompt_mean", "WORLD_SIZE, divided by C"),
)
STEPS = (
    right("steps:segments_known_by_their_lengths", "sample_mean", "segment ids kept by lengths"),
    right("steps:counts_in_a_buffer_of_zeros", "token_mean", "a static buffer, zeroed each time"),
    right("steps:both_halves_of_the_tokens", "token_mean", "long streams in two halves"),
    right("steps:running_sum_in_thirty_two_bits", "token_mean", "16-bit losses in float32"),
    right("steps:positions_in_words", "sample_mean", "positions counted from bytes"),
    right("steps:weights_of_the_same_dtype", "prompt_mean", "a tensor of weights in their dtype"),
    right("steps:logged_by_every_rank", "token_mean", "a pair from each rank, some of zeros"),
    right("steps:divergence_on_every_shard", "sample_mean", "a KL term under context parallelism"),
)
RIGHT: tuple[Fresh, ...] = (*FUSED, *INDEXING, *ROLLOUTS, *WORLDS, *STEPS)
