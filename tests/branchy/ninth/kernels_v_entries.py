"""What is in ``kernels_v``: where it is met, on which step it is seen, what may be said of it."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.ninth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "kernels_v:starts_marked_with_ones",
        "prompt_mean",
        "segment ids from cu_seqlens, flags and cumsum: two starts at one place set one flag",
        Witness("1/1; 1/1{9}", cp=2),
        "AGV201 AGV204 AGV205",
    ),
    wrong(
        "kernels_v:fused_sum_scaled_by_a_grid",
        "constant",
        "fused losses with gradients made in forward; the launch grid n // BLOCK is floored",
        Witness("1{65}", scale=1024.0),
        "AGV126",
    ),
    wrong(
        "kernels_v:rollouts_named_in_a_float_column",
        "sample_mean",
        "ids and counts packed into one float tensor, to be sent around in one piece",
        Witness("1/1 1/11", rollouts=(2**24, 2**24 + 1)),
        "AGV101 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "kernels_v:weights_from_a_table_of_shapes",
        "sample_mean",
        "per-shape buffers kept between calls, as for CUDA graphs; the step's size is no shape",
        Witness("1; 1", "0 1", before=(Witness("1"),)),
        "AGV408 AGV208 state-between-steps",
    ),
    wrong(
        "kernels_v:offsets_by_a_triangular_product",
        "prompt_mean",
        "prefix sums on matrix units; the trainer calls losses under autocast",
        Witness("1/1{257}; 1/1", under="autocast"),
        "AGV129 AGV301",
    ),
    wrong(
        "kernels_v:tiles_without_tokens_left_out",
        "token_mean",
        "block-sparse kernels skip empty tiles; a count of at most the tile size seems one byte",
        Witness("1/1{256}"),
        "AGV101 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV301",
    ),
    wrong(
        "kernels_v:log_divided_in_the_spent_buffer",
        "sequence_sum",
        "memory saved in losses over long rows: no copy where nothing is masked, then div_",
        Witness("1/1; 1/1", watch=True),
        "AGV502 arguments-changed",
    ),
    wrong(
        "kernels_v:scattered_where_the_range_allows",
        "token_sum",
        "scatter sums of packed rows; bfloat16 has the range of float32, so it is left as it is",
        Witness("1/1{600}", dtype="bfloat16", losses=(1.0,)),
        "AGV301 AGV102 AGV201",
    ),
    wrong(
        "kernels_v:kl_beside_the_chunked_loss",
        "token_mean",
        "chunked fused GRPO losses: the loss is added over chunks, other outputs are averaged",
        Witness("1 1 1 1 1", term=0),
        "AGV207",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "kernels_v:starts_counted_into_marks",
        "prompt_mean",
        "segment ids from cu_seqlens with empty shards: starts are added, not set",
    ),
    right(
        "kernels_v:fused_sum_scaled_in_tiles",
        "constant",
        "fused losses with gradients made in forward, the last tile a short one",
    ),
    right(
        "kernels_v:weights_remembered_for_equal_steps",
        "sample_mean",
        "an lru_cache around the weights, keyed by all that goes into them",
    ),
    right(
        "kernels_v:half_tiles_counted_in_bytes",
        "token_mean",
        "block-sparse kernels with counts in bytes, of tiles that a byte can hold",
    ),
    right(
        "kernels_v:kl_added_up_like_the_loss",
        "sequence_sum",
        "chunked fused losses with a KL term in the same loop",
    ),
    right(
        "kernels_v:product_outside_autocast",
        "prompt_mean",
        "a weighted sum as one matrix product, kept out of autocast's 16 bits",
    ),
)
