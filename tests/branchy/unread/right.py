"""The right ones: as many branches as the wrong ones have, and right on all of them."""

from __future__ import annotations

from tests.branchy.unread.base import Unread, right

FUSED = (
    right("fused:chunks_by_their_tokens", "token_mean", "chunked losses over a packed stream"),
    right("fused:kernel_with_its_tail", "sample_mean", "a backward in blocks, the last one short"),
    right("fused:falls_back_to_the_same_mean", "prompt_mean", "a fallback after eight shapes"),
    right("fused:pairs_of_rows_padded", "sequence_sum", "tree sums for reproducible training"),
    right("fused:denominators_of_this_chunk", "sample_mean", "rows in chunks of eight"),
    right("fused:beyond_the_largest_graph_eager", "token_mean", "CUDA graphs for a few sizes"),
    right("fused:as_many_slots_as_samples", "sequence_sum", "static buffers, filled repeatedly"),
    right("fused:fused_with_any_gradient", "token_mean", "a custom backward beside plain autograd"),
    right("fused:whole_warps_and_the_rest", "token_sum", "rows of 128 and what is left over"),
    right("fused:matmul_for_small_ones", "prompt_mean", "a one-hot product, a loop where large"),
)
PACKING = (
    right("packing:starts_are_counted", "sample_mean", "segment ids from starts, added up"),
    right("packing:unsorted_with_the_inverse", "prompt_mean", "sorted by length and back"),
    right("packing:dense_rows_of_rollouts", "sample_mean", "a view where all lengths are equal"),
    right("packing:sorted_into_buckets", "token_mean", "length buckets after sorting"),
    right("packing:boundaries_after_sorting", "prompt_mean", "prompt boundaries of sorted rows"),
    right("packing:denominators_in_order_of_ids", "sample_mean", "torch.unique with its counts"),
    right("packing:sorted_as_numbers", "sample_mean", "ids as JSON keys, sorted as numbers"),
    right("packing:denominators_by_tokens", "sample_mean", "rows of equal counts divided at once"),
    right("packing:even_batches_of_nothing", "prompt_mean", "padding rows that are zero"),
    right("packing:differences_of_segments", "prompt_mean", "scatter for many samples, else loops"),
    right(
        "packing:mean_of_equal_lengths_everywhere",
        "token_mean",
        "N times T where all rollouts of the step have T tokens",
    ),
)
PARALLEL = (
    right("parallel:every_sample_is_dense", "token_sum", "no mask where all masks are ones"),
    right("parallel:gathered_counts", "token_mean", "own counts over ranks, as a tree of any size"),
    right("parallel:returns_after_the_collective", "token_mean", "an early return that is late"),
    right("parallel:every_sample_tells_the_layout", "sample_mean", "local counts where whole"),
    right("parallel:rollouts_of_all_ranks", "constant", "a local batch size where it divides"),
    right("parallel:gathered_or_sharded", "prompt_mean", "two ways to split, one for gathered"),
    right("parallel:world_as_it_is", "sequence_sum", "halving for powers of two only"),
    right("parallel:four_ways", "sample_mean", "a dispatch table by layout"),
    right("parallel:masks_compared_before_use", "token_mean", "own zigzag slices, if they agree"),
    right("parallel:names_in_order", "token_mean", "counts packed in sorted order"),
    right("parallel:balanced_batches_checked", "sample_mean", "means of means where balanced"),
    right("parallel:groups_wherever_they_are", "prompt_mean", "whole groups and split ones"),
    right("parallel:refuses_gathered_losses", "sample_mean", "a clear exception for one layout"),
)
COUNTING = (
    right("counting:counts_known_by_all_bits", "sample_mean", "a memo by the whole mask"),
    right("counting:reciprocals_by_what_they_are_of", "prompt_mean", "a memo by its arguments"),
    right("counting:counts_beyond_the_maximum", "sample_mean", "a loop for overlong rollouts"),
    right("counting:clamp_in_both_paths", "sample_mean", "two paths, both clamped"),
    right("counting:nothing_times_a_sum", "token_mean", "zero with a graph as sum() * 0"),
    right("counting:empty_samples_with_their_counts", "sample_mean", "both lists are filtered"),
    right("counting:zero_over_one", "sample_mean", "where() in front of a division"),
    right("counting:one_path_for_every_dtype", "sample_mean", "16-bit losses are widened first"),
    right("counting:slots_without_collision", "prompt_mean", "a table, or a loop on collision"),
    right("counting:ids_as_int64", "prompt_mean", "ids numbered in order of appearance"),
    right("counting:spiky_losses_are_counted", "token_mean", "a guard that only counts"),
    right("counting:lengths_in_a_list_of_its_own", "sequence_sum", "a sorted copy for a log line"),
    right("counting:words_of_sixty_four_bits", "token_mean", "packed masks without a sign"),
)
ROLLOUTS = (
    right("rollouts:one_turn_is_a_slice", "token_sum", "a slice for responses of one turn"),
    right("rollouts:every_turn", "sequence_sum", "slices for few turns, masks for many"),
    right("rollouts:mean_over_turns", "sample_mean", "turn by turn, divided by the rollout's"),
    right("rollouts:overlong_responses_counted", "constant", "cut responses are only counted"),
    right("rollouts:context_window_in_parts", "token_mean", "inside and beyond a window"),
    right("rollouts:a_start_token_before_it", "sequence_sum", "samples without a prompt"),
    right("rollouts:complete_by_tokens", "prompt_mean", "own counts where a group is whole"),
    right("rollouts:rollouts_by_their_names", "sample_mean", "rollouts counted after sorting"),
    right("rollouts:sparse_masks_as_places", "token_mean", "only the places that are kept"),
    right("rollouts:groups_without_signal_skipped", "prompt_mean", "empty groups cost nothing"),
    right("rollouts:first_last_and_between", "sample_mean", "three slices of a conversation"),
)
SETTINGS = (
    right("settings:window_of_this_step", "sequence_sum", "an own path for one micro-batch"),
    right("settings:logged_as_it_is", "sample_mean", "the objective as a scalar log"),
    right("settings:logged_with_its_tokens", "token_mean", "the objective as [sum, count]"),
    right("settings:the_same_loss_in_validation", "token_mean", "an own path under no_grad"),
    right("settings:divergence_over_all_tokens", "token_mean", "a KL term with two paths"),
    right("settings:divided_by_what_is_set", "constant", "a mode from the environment"),
    right("settings:sum_by_table", "sequence_sum", "a dispatch by the number of micro-batches"),
    right("settings:other_devices_in_float64", "token_mean", "float64 on the CPU only"),
    right("settings:float32_as_float64", "prompt_mean", "two paths by dtype"),
)
RIGHT: tuple[Unread, ...] = (*FUSED, *PACKING, *PARALLEL, *COUNTING, *ROLLOUTS, *SETTINGS)
