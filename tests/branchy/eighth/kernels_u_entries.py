"""The reducers of kernels_u, with a step on which each wrong one fails."""

from __future__ import annotations

from tests.branchy.eighth.base import right, wrong
from tests.branchy.fresh.base import Fresh
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "kernels_u:gradient_made_in_forward",
        "sequence_sum",
        "fused losses with the gradient made in forward; bfloat16 is thought to have no scaler",
        Witness("1/11", dtype="bfloat16", scale=1024.0),
        "AGV126",
    ),
    wrong(
        "kernels_u:last_tile_moved_back",
        "sample_mean",
        "vectorised kernels without tail masks; n % TILE is 0 where a tile ends with the input",
        Witness("1/1{128}"),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV206",
    ),
    wrong(
        "kernels_u:dead_tiles_skipped",
        "token_sum",
        "block-sparse masks with byte counts per block; a full block of 256 counts as 0",
        Witness("1/1{256}"),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV206 AGV301",
    ),
    wrong(
        "kernels_u:vectors_of_lanes",
        "constant",
        "Liger-like in-place kernels; .to() and a pad that is not needed give no copy",
        Witness("1/11111110", dtype="float32", watch=True),
        "AGV502 arguments-changed",
    ),
    wrong(
        "kernels_u:captured_by_size",
        "token_mean",
        "static inputs of CUDA graphs by bucket; what a longer input left behind is not cleared",
        Witness("1/1{17}", before=(Witness("1/1{20}"),)),
        "AGV102 AGV132 AGV133 AGV201 AGV202 AGV203 AGV204 AGV205 AGV407 AGV408 state-between-steps",
    ),
    wrong(
        "kernels_u:chunk_means_logged",
        "token_mean",
        "chunked cross-entropy whose metric takes chunks for equally masked (torchtune, Liger)",
        Witness("1/01{32}"),
        "AGV511 AGV513 wrong-normaliser response-lengths-counted",
    ),
    wrong(
        "kernels_u:metadata_beside_the_losses",
        "prompt_mean",
        "one packed tensor of metadata for a segmented kernel; ids lose their last digits in it",
        Witness("1/1; 1/11", dtype="float32", groups=(2**24, 2**24 + 1)),
        "AGV101 AGV112 AGV142 AGV202 AGV203 AGV204 AGV205 AGV206",
    ),
    wrong(
        "kernels_u:ends_by_triangle",
        "sample_mean",
        "prefix sums as a matrix product, which autocast runs in bfloat16; called inside autocast",
        Witness("1/1{257}; 1/111", under="autocast"),
        "AGV129 AGV301",
    ),
    wrong(
        "kernels_u:penalty_in_chunks",
        "token_mean",
        "chunked GRPO losses (Liger, TRL) whose kl is a mean of chunk means, the tail among them",
        Witness("1/1{33}", term=0),
        "AGV207 auxiliary-local-count",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "kernels_u:last_tile_overlaps",
        "sample_mean",
        "vectorised kernels without tail masks; the last window is empty where nothing is left",
    ),
    right(
        "kernels_u:chunks_with_their_gradient",
        "constant",
        "Liger-like gradient in forward, multiplied by what backward is given unless that is 1",
    ),
    right(
        "kernels_u:shared_buffer_by_size",
        "sequence_sum",
        "static inputs of CUDA graphs by bucket, whose tail is cleared in every call",
    ),
    right(
        "kernels_u:live_tiles_of_groups",
        "prompt_mean",
        "block-sparse masks with byte counts, of blocks that fit a byte, and integer ids",
    ),
    right(
        "kernels_u:chunk_sums_logged",
        "token_mean",
        "chunked cross-entropy that logs a sum and a count, and skips chunks without a token",
    ),
    right(
        "kernels_u:both_terms_in_rows",
        "token_sum",
        "chunked losses with policy and kl in one tensor, to launch one reduction for both",
    ),
)
