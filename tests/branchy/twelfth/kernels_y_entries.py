"""What the reducers of kernels_y are, and what is wrong with the wrong ones."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.twelfth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "kernels_y:gradient_made_with_the_chunks",
        "token_mean",
        "fused linear cross-entropy: the gradient is made in forward, backward hands it out",
        Witness("1/1{33}", scale=1024.0),
        "AGV126",
    ),
    wrong(
        "kernels_y:kl_by_chunk_means",
        "token_sum",
        "chunked KL next to a fused policy loss: chunk means are averaged, the last one is short",
        Witness("1/1{65}", term=0),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV207 "
        "auxiliary-local-count",
    ),
    wrong(
        "kernels_y:mean_kernel_under_autocast",
        "sequence_sum",
        "mixed-precision fused loss that knows only a mean: times the length to get the sum back",
        Witness("1/10", dtype="float32", under="autocast"),
        "AGV129 AGV141 AGV142 AGV201 response-lengths-counted",
    ),
    wrong(
        "kernels_y:segments_in_the_range_of_bfloat16",
        "sequence_sum",
        "segment sums by index_add: bfloat16 cannot overflow, so it is not made wider",
        Witness("1/1{600}", dtype="bfloat16", losses=(1.0,)),
        "AGV102 AGV201 AGV204 AGV301 AGV302",
    ),
    wrong(
        "kernels_y:launch_plan_by_lengths",
        "sample_mean",
        "varlen kernels keep metadata by sequence lengths; the counts went into it as well",
        Witness("1/10", before=(Witness("1/11"),)),
        "AGV112 AGV141 AGV142 AGV202 AGV203 AGV204 AGV205 AGV208 AGV408 state-between-steps",
    ),
    wrong(
        "kernels_y:counts_with_a_block_scale",
        "prompt_mean",
        "packed row metadata as bytes with an absmax scale, as quantised optimizer states have it",
        Witness("1/1{257}"),
        "AGV101 AGV202 AGV203 AGV204 AGV206 AGV301",
    ),
    wrong(
        "kernels_y:tile_statistics_logged",
        "token_mean",
        "tiled kernels that write a sum and a count per tile, the count clamped for its division",
        Witness("1/1; 1/0", "0 1"),
        "AGV511 AGV513 wrong-normaliser phantom-tokens empty-micro-batch-counted",
    ),
    wrong(
        "kernels_y:cleared_in_the_wide_buffer",
        "constant",
        "custom function that upcasts, then works in place: a cast that is none makes no copy",
        Witness("1/10", dtype="float32", watch=True),
        "AGV502 arguments-changed",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "kernels_y:backward_from_the_mask",
        "token_mean",
        "custom function of a chunked loss that saves the mask instead of a gradient",
    ),
    right(
        "kernels_y:segments_in_a_wide_accumulator",
        "sample_mean",
        "segment sums of packed rows by index_add",
    ),
    right(
        "kernels_y:table_by_its_own_counts",
        "prompt_mean",
        "divisors kept on the device between calls, so that none is copied twice",
    ),
    right(
        "kernels_y:tree_with_a_carry",
        "constant",
        "two-stage reduction of tiles as a GPU does it",
    ),
    right(
        "kernels_y:rows_or_tiles",
        "sequence_sum",
        "kernels that split only long rows (split-K), the loss logged as it is",
    ),
    right(
        "kernels_y:dot_outside_autocast",
        "token_sum",
        "KL and policy by dot products in full precision within a mixed-precision step",
    ),
)
