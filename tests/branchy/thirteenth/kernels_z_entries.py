"""What the reducers of kernels_z are, and where such code is met."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.thirteenth.base import right

WRONG: tuple[Fresh, ...] = ()

RIGHT: tuple[Fresh, ...] = (
    right(
        "kernels_z:mask_kept_as_bits",
        "sample_mean",
        "fused segment means that save a bit a token, as dropout kernels save their masks",
    ),
    right(
        "kernels_z:tiles_that_end_with_their_sample",
        "prompt_mean",
        "varlen kernels whose tiles do not cross samples, contracted with a share a tile",
    ),
    right(
        "kernels_z:as_exact_as_its_format",
        "token_sum",
        "sums dispatched by dtype and device, compensated where no wider format is left",
    ),
    right(
        "kernels_z:both_terms_by_an_incidence_matrix",
        "sample_mean",
        "scatter written as a sparse product, policy and KL as its columns, both of them logged",
    ),
    right(
        "kernels_z:compiled_where_it_pays",
        "constant",
        "a loss core given to torch.compile with dynamic shapes, eager for short pieces",
    ),
    right(
        "kernels_z:segments_made_again_in_backward",
        "token_mean",
        "chunked losses under activation checkpointing, logged for a trainer that averages calls",
    ),
    right(
        "kernels_z:streamed_into_a_dense_buffer",
        "sequence_sum",
        "stream compaction by prefix sum, as unpadding kernels do it",
    ),
    right(
        "kernels_z:gradient_ready_before_backward",
        "prompt_mean",
        "Liger-like losses: grad_and_value chunk by chunk, multiplied by grad_output in backward",
    ),
)
