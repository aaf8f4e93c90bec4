"""The wrong ones: where such code is met, and a step on which it is wrong."""

from __future__ import annotations

from tests.branchy.unread.base import Unread, wrong
from tests.branchy.unread.witness import Witness

_ONES = "; ".join("1" * n + " 1" for n in range(1, 12))

FUSED = (
    wrong(
        "fused:chunks_by_their_length",
        "token_mean",
        "chunked losses (Liger, chunked cross-entropy) that weigh chunks by their length",
        Witness("1{1000}0{900}1{400}"),
    ),
    wrong(
        "fused:kernel_without_its_tail",
        "sample_mean",
        "a Triton backward whose grid is n // BLOCK instead of cdiv(n, BLOCK)",
        Witness("1{600}; 1{10}"),
    ),
    wrong(
        "fused:falls_back_to_another_mean",
        "prompt_mean",
        "torch.compile's recompile limit, with a fallback that was not changed with the rest",
        Witness(_ONES, " ".join(f"{2 * n},{2 * n + 1}" for n in range(11))),
    ),
    wrong(
        "fused:pairs_of_rows",
        "sequence_sum",
        "tree sums for reproducible training that pad to an even number once, not on every level",
        Witness("1 1 1 1 1 1"),
    ),
    wrong(
        "fused:denominators_of_another_chunk",
        "sample_mean",
        "row chunks against memory peaks, with the chunk's number for its offset",
        Witness("1 11 1 111 1 11 1 1111 1 11111"),
    ),
    wrong(
        "fused:largest_graph_takes_the_rest",
        "token_mean",
        "CUDA graphs captured for a table of sizes; longer inputs meet the largest",
        Witness("1{1500}; 1{900}"),
    ),
    wrong(
        "fused:thirty_two_slots",
        "sequence_sum",
        "static buffers with as many slots as max_num_seqs, under dynamic batching",
        Witness(" ".join(["1"] * 40)),
    ),
    wrong(
        "fused:last_layer_has_gradient_one",
        "token_mean",
        "fused linear cross-entropy that skips grad_output because the loss is the last layer",
        Witness("11; 10", scale=1024.0),
    ),
    wrong(
        "fused:whole_warps",
        "token_sum",
        "a view as rows of 128 for a kernel, which drops what is left over",
        Witness("1{2100}"),
    ),
)
PACKING = (
    wrong(
        "packing:two_starts_in_one_place",
        "sample_mean",
        "segment ids from scattered starts and a cumsum; empty pieces under context parallelism",
        Witness("1{8}; 8/1; 1{5}", cp=2),
    ),
    wrong(
        "packing:unsorted_with_the_sorting_order",
        "prompt_mean",
        "sorting by length for the packer, undone with the permutation instead of its inverse",
        Witness("11; 1; 111"),
    ),
    wrong(
        "packing:dense_rows_are_rollouts",
        "sample_mean",
        "a view for rows of one length, written before a rollout could have several samples",
        Witness("11+11 11"),
    ),
    wrong(
        "packing:neighbours_make_a_bucket",
        "token_mean",
        "length buckets with itertools.groupby over rows that are not sorted",
        Witness("11 11111 11"),
    ),
    wrong(
        "packing:boundaries_from_counts",
        "prompt_mean",
        "prompt boundaries as start and end, of batches that balancing has shuffled",
        Witness("1 11; 1111", "0,2,1"),
    ),
    wrong(
        "packing:denominators_in_order_of_appearance",
        "sample_mean",
        "torch.unique sorts ids, the counts beside them keep the batch's order",
        Witness("1+1 11 111"),
    ),
    wrong(
        "packing:sorted_as_text",
        "sample_mean",
        "rollout ids as keys of JSON, sorted as text beside counts sorted as numbers",
        Witness("1 11", rollouts=(9, 10)),
    ),
    wrong(
        "packing:denominators_by_length",
        "sample_mean",
        "reciprocals kept per length, of responses that differ in their tool output",
        Witness("11 10 11 11 11"),
    ),
    wrong(
        "packing:even_batches",
        "prompt_mean",
        "accelerate's even_batches: the last row again until the ranks divide",
        Witness("1 11; 111 1", "0,1,2 | 3"),
    ),
    wrong(
        "packing:mean_of_equal_lengths",
        "token_mean",
        "N times T for a batch without padding, taken from one micro-batch for the step",
        Witness("11 11 11; 1", "0,1,2 3"),
    ),
)
PARALLEL = (
    wrong(
        "parallel:first_sample_is_dense",
        "token_sum",
        "a shortcut without context parallelism that looks at one mask of the batch",
        Witness("11; 10"),
    ),
    wrong(
        "parallel:halving_doubling_counts",
        "token_mean",
        "a butterfly all-reduce of log2(D) rounds where D is no power of two",
        Witness("1; 11; 111", "0 | 1 | 2"),
    ),
    wrong(
        "parallel:returns_before_the_collective",
        "token_mean",
        "an early return on a rank without a token, in front of an all-reduce",
        Witness("11; 00", "0 | 1"),
    ),
    wrong(
        "parallel:first_sample_tells_the_layout",
        "sample_mean",
        "whether losses are sharded is guessed from the first sample's length",
        Witness("1; 1{9}", cp=2, kind="contiguous"),
    ),
    wrong(
        "parallel:rollouts_per_rank",
        "constant",
        "global_batch_size // dp_size, times dp_size: a last batch that does not divide",
        Witness("1; 1; 1", "0,1 | 2"),
    ),
    wrong(
        "parallel:gathered_on_one_node",
        "prompt_mean",
        "the mean over replicas that all have the loss, though each has its own gradient",
        Witness("11; 111", cp=2, kind="gathered"),
    ),
    wrong(
        "parallel:world_rounded_up",
        "sequence_sum",
        "means over a binary tree of ranks, scaled back as if it were full",
        Witness("1; 1; 1", "0 | 1 | 2"),
    ),
    wrong(
        "parallel:eight_ways",
        "sample_mean",
        "a dispatch table by layout, one entry copied from an older function",
        Witness("1{8}; 11", "0 1", cp=2),
    ),
    wrong(
        "parallel:masks_cut_in_zigzag",
        "token_mean",
        "masks cut by the framework's own zigzag while attention uses contiguous chunks",
        Witness("4/0111", cp=2, kind="contiguous"),
    ),
    wrong(
        "parallel:names_in_a_set",
        "token_mean",
        "counts packed in the order of a set of strings, which each process hashes for itself",
        Witness("1 11 111 1111", "0 | 1 | 2 | 3", where="launched"),
    ),
    wrong(
        "parallel:balanced_batches",
        "sample_mean",
        "a mean of means where N divides by K * D, with dynamic batching switched on later",
        Witness("1 1 1 1", "0 1,2,3"),
    ),
    wrong(
        "parallel:groups_that_are_complete",
        "prompt_mean",
        "sums that wait for the rest of their prompt group, which is on another rank",
        Witness("1 1; 1 1", "0 2 | 1 3"),
    ),
)
COUNTING = (
    wrong(
        "counting:counts_known_by_their_prefix",
        "sample_mean",
        "a memo whose key is cut short because long keys were slow",
        Witness("1{100}; 1{64}0{36}"),
    ),
    wrong(
        "counting:group_tokens_of_an_earlier_step",
        "prompt_mean",
        "a memo by prompt id, though every epoch samples new responses",
        Witness("11", before=(Witness("1"),)),
    ),
    wrong(
        "counting:counts_up_to_the_maximum",
        "sample_mean",
        "a pinned maximum response length, and agents whose turns add up to more",
        Witness("1{1100}"),
    ),
    wrong(
        "counting:epsilon_in_the_packed_path",
        "sample_mean",
        "sum / (count + 1e-6) in the newer of two paths",
        Witness(" ".join(["11"] * 16)),
    ),
    wrong(
        "counting:nothing_times_a_mean",
        "token_mean",
        "zero with a graph as mean() * 0, on a rank with no token of its own",
        Witness("8/1", cp=2),
    ),
    wrong(
        "counting:empty_samples_left_out",
        "sample_mean",
        "overlong or failed samples are filtered, the list of denominators is not",
        Witness("00; 11; 1"),
    ),
    wrong(
        "counting:zero_over_zero_made_zero",
        "sample_mean",
        "nan_to_num behind a division: the loss is 0, its gradient 0 times infinity",
        Witness("00; 11"),
    ),
    wrong(
        "counting:another_path_for_bfloat16",
        "sample_mean",
        "an upcasting branch for 16-bit losses that later changes passed by",
        Witness("11+1", dtype="bfloat16"),
    ),
    wrong(
        "counting:slots_by_hash",
        "prompt_mean",
        "a table of fixed size indexed by the prompt's number modulo the size",
        Witness("1; 11", groups=(3, 67)),
    ),
    wrong(
        "counting:ids_as_float32",
        "prompt_mean",
        "ids in a float tensor dict; dataset rows and hashes go beyond 2^24",
        Witness("1; 11", groups=(1 << 24, (1 << 24) + 1)),
    ),
    wrong(
        "counting:spiky_losses_are_clamped",
        "token_mean",
        "a guard against loss spikes that takes their gradient away",
        Witness("11", losses=(150.0, 1.0)),
    ),
    wrong(
        "counting:sorts_the_callers_lengths",
        "sequence_sum",
        "list.sort() for a log line, on the list that the caller goes on to use",
        Witness("1 11 111", watch=True),
    ),
    wrong(
        "counting:signed_words",
        "token_mean",
        "packed masks as int64, whose last bit is the sign",
        Witness("1{64}"),
    ),
)
ROLLOUTS = (
    wrong(
        "rollouts:one_turn_is_dense",
        "token_sum",
        "turns counted as rising edges, without the one that begins the response",
        Witness("1{9}0{4}1{7}"),
    ),
    wrong(
        "rollouts:eight_turns_at_most",
        "sequence_sum",
        "a pinned number of tool calls, and an agent that is allowed more since",
        Witness("10" * 9),
    ),
    wrong(
        "rollouts:mean_of_turns",
        "sample_mean",
        "turn-level normalisation that a recipe added to the sample mean",
        Witness("1011011"),
    ),
    wrong(
        "rollouts:overlong_responses_filtered",
        "constant",
        "overlong filtering (DAPO) inside the loss, on top of the trainer's masks",
        Witness("1{4096}; 1"),
    ),
    wrong(
        "rollouts:context_window",
        "token_mean",
        "a pinned context length, after the model got a longer one",
        Witness("4000/1{200}"),
    ),
    wrong(
        "rollouts:no_logit_without_a_prompt",
        "sequence_sum",
        "the shift by one for samples without a prompt (pretraining data in the mix)",
        Witness("0/111"),
    ),
    wrong(
        "rollouts:complete_by_number",
        "prompt_mean",
        "a group is taken for whole at N / P samples, while groups are ragged",
        Witness("1 11 111; 1", "0,1 2 3"),
    ),
    wrong(
        "rollouts:rollouts_by_their_runs",
        "sample_mean",
        "rollouts counted where their id changes, of samples that balancing has moved apart",
        Witness("1+11 1", "0,2,1"),
    ),
    wrong(
        "rollouts:sparse_masks_are_gathered",
        "token_mean",
        "nonzero().squeeze() has no length when one token is left",
        Witness("0{20}1"),
    ),
    wrong(
        "rollouts:groups_without_signal_left_out",
        "prompt_mean",
        "DAPO's dynamic sampling: groups of loss 0 are no longer counted",
        Witness("1 1; 1 1", losses=(0.0, 0.0, 1.0, 2.0)),
    ),
    wrong(
        "rollouts:first_and_last_only",
        "sample_mean",
        "plan and answer are trained, written for agents that call one tool",
        Witness("10101"),
    ),
)
SETTINGS = (
    wrong(
        "settings:window_of_the_first_step",
        "sequence_sum",
        "gradient_accumulation_steps fixed at the first step, under dynamic batching",
        Witness("1; 1", "0 1", before=(Witness("1 1", "0 1"), Witness("1 1 1", "0 1 2"))),
    ),
    wrong(
        "settings:logged_as_the_window_is",
        "sample_mean",
        "a log multiplied by K for a trainer that used to divide by it",
        Witness("1; 11", "0 1"),
    ),
    wrong(
        "settings:logged_with_one_token_each",
        "token_mean",
        "the count of a [sum, count] log clamped to 1 per sample, as Megatron's once was",
        Witness("00; 11"),
    ),
    wrong(
        "settings:another_loss_in_validation",
        "token_mean",
        "the eval step's own normalisation under no_grad, compared with the training loss",
        Witness("1; 111", "0 1", under="no_grad"),
    ),
    wrong(
        "settings:divergence_over_local_tokens",
        "token_mean",
        "a KL term added with a micro-batch mean beside a global policy loss",
        Witness("1; 111", "0 1", term=0),
    ),
    wrong(
        "settings:divided_by_the_longest",
        "constant",
        "a scale factor that falls back to the padded width, which each micro-batch has its own of",
        Witness("1{20}; 1", "0 1"),
    ),
    wrong(
        "settings:sum_or_mean_by_table",
        "sequence_sum",
        "a dispatch by the number of micro-batches, whose last entry is a mean",
        Witness(" ".join(["1"] * 10), " ".join(["0,1", *map(str, range(2, 10))])),
    ),
    wrong(
        "settings:float32_in_production",
        "prompt_mean",
        "float64 takes the reference path for gradcheck, training another",
        Witness("1 11", "0 1", dtype="float32"),
    ),
)
WRONG: tuple[Unread, ...] = (*FUSED, *PACKING, *PARALLEL, *COUNTING, *ROLLOUTS, *SETTINGS)
