"""Wrong ones of one rank for the most part: kernels, shapes, numbers."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.latest.base import wrong
from tests.branchy.unread.witness import Witness

KERNELS = (
    wrong(
        "kernels:windows_overlap_by_one",
        "token_mean",
        "log-probabilities in windows, one token more for the shift, whose loss counts in both",
        Witness("1{300}"),
        "AGV101 AGV141 AGV142 AGV205",
    ),
    wrong(
        "kernels:gradient_made_with_the_count_so_far",
        "token_mean",
        "fused losses that make a chunk's gradient in forward, before the last mask was seen",
        Witness("1{300}"),
        "AGV101 AGV102 AGV141 AGV142 AGV205",
    ),
    wrong(
        "kernels:scaled_back_by_the_last_chunk",
        "sample_mean",
        "block scales against underflow, taken off once behind the loop",
        Witness("; ".join([*["1"] * 8, "11"])),
        "AGV101 AGV112 AGV141 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "kernels:lanes_clamped_to_the_last_token",
        "token_sum",
        "a kernel that clamps its offsets so as not to read outside, and masks nothing",
        Witness("1{33}"),
        "AGV101 AGV141 AGV142 AGV205",
    ),
    wrong(
        "kernels:gradients_clipped_by_a_hook",
        "sequence_sum",
        "a clamp in register_hook against spikes, from before there was a loss scale",
        Witness("1", scale=1024.0),
        "AGV126",
    ),
    wrong(
        "kernels:last_block_ends_at_the_last_index",
        "sample_mean",
        "min(start + BLOCK, n - 1), from a language where ranges have their end",
        Witness("1{70}"),
        "AGV101 AGV141 AGV142 AGV201 AGV204 edge-token-dropped",
    ),
    wrong(
        "kernels:autotuned_in_the_first_calls",
        "token_mean",
        "an autotuner that tries a kernel for whole blocks on whatever comes second",
        Witness("1{9}", before=(Witness("1{9}"),)),
        "AGV202 AGV204 AGV208 AGV407 AGV408 state-between-steps not-repeatable remainder-dropped",
    ),
    wrong(
        "kernels:masks_losses_in_place",
        "token_mean",
        "masked_fill_ against memory peaks, on losses that the trainer logs afterwards",
        Witness("1{70}0", watch=True),
        "AGV502 arguments-changed",
    ),
    wrong(
        "kernels:long_responses_in_segments",
        "sample_mean",
        "truncated backpropagation, which makes a long response several sequences",
        Witness("1{200}"),
        "AGV101 AGV141 AGV142",
    ),
)
SHAPES = (
    wrong(
        "shapes:broadcast_instead_of_an_error",
        "sequence_sum",
        "try and except around an addition that does not fail for a row of one token",
        Witness("1; 111"),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 samples-dropped",
    ),
    wrong(
        "shapes:square_matrix_is_divided_by_columns",
        "sample_mean",
        "a dimension that is added where shapes differ, and (B, T) with as many rows as columns",
        Witness("11; 01"),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 repeated-in-turn",
    ),
    wrong(
        "shapes:samples_begin_where_positions_fall",
        "sample_mean",
        "boundaries from position ids, as for varlen attention, on shards",
        Witness("111; 1{12}", cp=2, kind="contiguous"),
        "AGV201 AGV204",
    ),
    wrong(
        "shapes:starts_of_aligned_rows",
        "prompt_mean",
        "cu_seqlens of rows aligned for FP8, used on a stream that is not",
        Witness("; ".join(["1"] * 5)),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV204 AGV205 samples-dropped",
    ),
    wrong(
        "shapes:rows_packed_to_whole_bytes",
        "token_sum",
        "np.packbits of each row fills its last byte, which unpacking all at once does not know",
        Witness("1{33}; 1{33}0{7}"),
        "AGV101 AGV112 AGV121 AGV122 AGV123 AGV124 AGV141 AGV142 AGV201 AGV204 AGV205 mask-shifted",
    ),
    wrong(
        "shapes:run_lengths_in_sixteen_bits",
        "constant",
        "masks as runs of short integers, from when a response had at most 8192 tokens",
        Witness("1{33000}"),
        "AGV101 AGV142 AGV301 samples-dropped",
    ),
    wrong(
        "shapes:boundaries_where_ids_rise",
        "sample_mean",
        "diff() > 0 for != 0 on ids that were sorted before batches were balanced",
        Witness("1 11", rollouts=(1, 0)),
        "AGV101 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "shapes:zeros_vanish_in_a_sparse_row",
        "token_mean",
        "nonzero() of the masked losses for nonzero() of the mask, in a path for long tool output",
        Witness("100000001", losses=(0.0, 1.0)),
        "AGV101 AGV131 not-linear",
    ),
    wrong(
        "shapes:inverted_bytes",
        "sequence_sum",
        "~mask of bytes: 254 is true, as is 255",
        Witness("1{101}"),
        "AGV101 AGV141 AGV142 samples-dropped",
    ),
)
NUMBERS = (
    wrong(
        "numbers:epsilon_of_the_dtype",
        "sample_mean",
        "finfo(dtype).eps for 1e-8, after 1e-8 had done nothing in float16",
        Witness("11", dtype="bfloat16"),
        "AGV101 AGV102 epsilon-inside another-formula",
    ),
    wrong(
        "numbers:weights_in_fixed_point",
        "token_mean",
        "fixed-point weights for results that are alike bit by bit, with too few bits",
        Witness("1{3000}", dtype="bfloat16"),
        "AGV101 AGV102 AGV301",
    ),
    wrong(
        "numbers:nearly_equal_counts_are_one_count",
        "sample_mean",
        "a fast path behind allclose, whose tolerance was meant for losses",
        Witness("1{200}; 1{201}"),
        "AGV101 AGV141 AGV202 AGV203 AGV204 another-formula",
    ),
    wrong(
        "numbers:the_constant_is_raised",
        "constant",
        "max(max_tokens, width) after an assertion on the width had failed",
        Witness("1{20}"),
        "AGV101 AGV141 AGV142 padded-width another-formula",
    ),
    wrong(
        "numbers:shares_rounded_for_the_log",
        "token_mean",
        "a number rounded for printing that is multiplied with a line later",
        Witness("1; 11", "0 1"),
        "AGV202 AGV203 AGV204",
    ),
    wrong(
        "numbers:never_exactly_zero",
        "prompt_mean",
        "a tiny number against alarms on a loss of 0, as on-policy steps have",
        Witness("11", losses=(0.0,)),
        "AGV102 AGV132 AGV133 epsilon-outside",
    ),
    wrong(
        "numbers:loss_in_bfloat16_over_ranks",
        "token_mean",
        "a communication hook's compression, put on the scalar as well",
        Witness("1; 11", "0 | 1"),
        "AGV102 AGV203 AGV204 AGV301",
    ),
    wrong(
        "numbers:shard_of_the_constant",
        "constant",
        "max_tokens // cp_size, as wide as a shard's rows are padded",
        Witness("11", cp=3),
        "AGV201 AGV204 count-floored another-formula",
    ),
)
ALONE: tuple[Fresh, ...] = (*KERNELS, *SHAPES, *NUMBERS)
