"""The reducers of ``kernels_x``: which are wrong, on what, and which only look it."""

from __future__ import annotations

from tests.branchy.eleventh.base import right, wrong
from tests.branchy.fresh.base import Fresh
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "kernels_x:gradient_laid_by_in_forward",
        "token_mean",
        "fused losses (Liger, Apex) that make the gradient in forward where inputs are long",
        Witness("1/1{513}", scale=1024.0),
        "AGV126",
    ),
    wrong(
        "kernels_x:penalty_in_tiles_and_a_tail",
        "constant",
        "a KL term with a block reduction of its own; the tail is cut from the end by its size",
        Witness("1/1{64}", term=0),
        "AGV207 AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "kernels_x:starts_by_triangular_product",
        "prompt_mean",
        "scans as matrix products (tensor cores, TPU), called within the trainer's autocast",
        Witness("1/1{257}; 1/1", under="autocast"),
        "AGV129 AGV301",
    ),
    wrong(
        "kernels_x:owners_from_a_plan",
        "sample_mean",
        "varlen kernels that plan once per shape (FlashInfer's plan and run, captured graphs)",
        Witness("1/1; 1/11", before=(Witness("1/11; 1/1"),)),
        "AGV408 AGV202 AGV204 AGV205 state-between-steps",
    ),
    wrong(
        "kernels_x:reciprocals_above_the_resolution",
        "sample_mean",
        "normalisers guarded by torch.finfo(dtype).eps, so that a reciprocal is never lost",
        Witness("1/1{200}", dtype="bfloat16"),
        "AGV101 AGV301",
    ),
    wrong(
        "kernels_x:masked_in_a_workspace",
        "token_sum",
        "fused kernels that mask in a workspace of their own, made by .float()",
        Witness("1/1{256}0", dtype="float32", watch=True),
        "AGV502 arguments-changed",
    ),
    wrong(
        "kernels_x:one_slot_per_rollout",
        "sequence_sum",
        "multi-turn rollouts cut into samples, their totals put into one buffer by scatter",
        Witness("1/1+1/1"),
        "AGV102 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "kernels_x:between_two_running_totals",
        "prompt_mean",
        "segment sums of packed sequences as differences of one cumulative sum (cu_seqlens)",
        Witness("1/1; 1/1111", cp=2),
        "AGV201 AGV204 AGV205 AGV302",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "kernels_x:chunks_and_their_gradients",
        "token_mean",
        "fused losses in chunks that store weights in forward and scale them in backward",
    ),
    right(
        "kernels_x:penalty_in_whole_tiles_and_a_rest",
        "constant",
        "a KL term with a block reduction of its own; the rest is cut where the tiles end",
    ),
    right(
        "kernels_x:starts_outside_autocast",
        "prompt_mean",
        "scans as matrix products, with autocast off around them and enough digits",
    ),
    right(
        "kernels_x:owners_planned_by_lengths",
        "sample_mean",
        "varlen kernels that keep a plan for every list of lengths, and only a few of them",
    ),
    right(
        "kernels_x:slots_added_up",
        "sequence_sum",
        "multi-turn rollouts cut into samples, their totals added into one buffer, and a log",
    ),
    right(
        "kernels_x:workspace_of_its_own",
        "token_sum",
        "fused kernels that mask in a copy, short inputs without one",
    ),
)
