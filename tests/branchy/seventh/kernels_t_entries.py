"""What ``kernels_t`` holds: where each is met, on which step it is seen, and what is true of it."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.seventh.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "kernels_t:gradient_made_in_lanes",
        "token_mean",
        "fused losses as in liger, gradient made in forward: the odd tail never meets grad_output",
        Witness("1/1{65}", scale=1024.0),
        "AGV126",
    ),
    wrong(
        "kernels_t:bounds_kept_beside_losses",
        "sample_mean",
        "cu_seqlens of a packed row made by new_tensor on the losses, so with their 16-bit dtype",
        Witness("1/1{250}; 1/1{7}; 1/1", dtype="bfloat16"),
        "AGV301 AGV101 AGV201 AGV202 AGV203 AGV204 AGV205 AGV112 AGV141 AGV142",
    ),
    wrong(
        "kernels_t:replayed_in_static_room",
        "token_sum",
        "static inputs of a CUDA graph padded to a bucket, with what an earlier call left",
        Witness("1/1{18}; 1/1{17}", "0 1"),
        "AGV102 AGV132 AGV133 AGV202 AGV204 AGV205 AGV407 AGV408 "
        "state-between-steps not-repeatable",
    ),
    wrong(
        "kernels_t:segments_from_positions",
        "prompt_mean",
        "varlen code reads segments off position ids; samples with an empty shard start nowhere",
        Witness("1/1; 1/11111111", cp=2),
        "AGV201 AGV204 AGV205",
    ),
    wrong(
        "kernels_t:table_of_fixed_slots",
        "prompt_mean",
        "per-segment tables padded to one size for static shapes, with indices clamped into them",
        Witness("1/1 1/1 1/1 1/1 1/1 1/1 1/1 1/1 1/1 1/1 1/1 1/1 1/1 1/1 1/1 1/1; 1/11"),
        "AGV101 AGV112 AGV141 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "kernels_t:idle_tiles_passed_over",
        "constant",
        "sparse chunk loops skip chunks without advantage, and the KL of these tokens with them",
        Witness("1/1{33}", term=0),
        "AGV207 AGV101 AGV131 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 "
        "auxiliary-left-out not-linear",
    ),
    wrong(
        "kernels_t:summed_in_a_wide_buffer",
        "token_mean",
        "upcast, then fill in place: .to() of what is wide already is no copy but the caller's own",
        Witness("1/1{32}0", watch=True),
        "AGV502 arguments-changed",
    ),
    wrong(
        "kernels_t:samples_scattered_together",
        "sequence_sum",
        "index_add of packed bfloat16 losses into a bfloat16 row of sums, upcast too late",
        Witness("1/1{512}; 1/1", dtype="bfloat16"),
        "AGV301 AGV102 AGV104 AGV201 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "kernels_t:rows_where_nothing_is_learned",
        "sample_mean",
        "a forward-only path beside the fused one, written before rollouts had several samples",
        Witness("1/1+1/1", under="no_grad"),
        "AGV128 sample-denominators",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "kernels_t:gradient_joined_from_lanes",
        "token_mean",
        "fused losses as in liger: tail and whole lanes are joined, then meet grad_output once",
    ),
    right(
        "kernels_t:bounds_found_by_bisection",
        "sample_mean",
        "cu_seqlens of a packed row in int64, bisected; a forward-only path with the same counts",
    ),
    right(
        "kernels_t:replayed_in_swept_room",
        "token_sum",
        "static inputs of a CUDA graph: kept between calls, but dead behind the last token",
    ),
    right(
        "kernels_t:table_in_blocks_of_slots",
        "prompt_mean",
        "per-segment tables padded to whole blocks, so that few shapes are compiled",
    ),
    right(
        "kernels_t:masked_tiles_passed_over",
        "constant",
        "a sparse chunk loop with KL beside the policy, which asks the mask what may be skipped",
    ),
    right(
        "kernels_t:samples_widened_and_scattered",
        "sequence_sum",
        "index_add of packed losses with float32 sums of the samples",
    ),
)
