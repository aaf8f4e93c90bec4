"""What is said of the reducers of ``memory_y``."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.twelfth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "memory_y:group_denominators_kept_per_arrangement",
        "prompt_mean",
        "denominators cached as packing metadata is, by ids and lengths; masks of tools differ",
        Witness("1/10", before=(Witness("1/11"),)),
        "AGV408 AGV208 state-between-steps",
    ),
    wrong(
        "memory_y:weights_written_into_a_workspace",
        "token_mean",
        "preallocated buffers of fused kernels, written where the mask is 1 and never cleared",
        Witness("1/11; 1/10", "0 1"),
        "AGV408 AGV208 AGV407 AGV202 AGV204 AGV205 AGV121 AGV122 AGV123 AGV124 AGV141 AGV112 "
        "state-between-steps not-repeatable mask-not-applied multiply-by-mask",
    ),
    wrong(
        "memory_y:fan_out_looked_for_in_warm_up",
        "sample_mean",
        "a fast path chosen in the first calls of an agent run, before any rollout has branched",
        Witness("1/1+1/1", before=(Witness("1; 1; 1; 1", "0 1 2 3"),)),
        "AGV408 state-between-steps sample-denominators",
    ),
    wrong(
        "memory_y:kl_over_rollouts_of_the_rank",
        "sequence_sum",
        "the KL term of an actor, added later, takes the rank's batch size times the world's",
        Witness("1; 1; 1", "0,1 | 2", term=0),
        "AGV207 AGV203 AGV204 AGV205 auxiliary-local-count units-counted-where-they-stand",
    ),
    wrong(
        "memory_y:token_sum_with_positive_share",
        "token_sum",
        "metrics in float32: the cast is a copy in mixed precision, and none where it is float32",
        Witness("1/10", dtype="float32", watch=True),
        "AGV502 arguments-changed",
    ),
    wrong(
        "memory_y:constant_with_early_gradient",
        "constant",
        "fused linear losses make the gradient in forward to save memory, and return it as it is",
        Witness("1/1{1025}", scale=1024.0),
        "AGV126",
    ),
    wrong(
        "memory_y:prompt_mean_with_a_validation_path",
        "prompt_mean",
        "validation samples one answer a prompt, until somebody asks for pass@k",
        Witness("1/11 1/1", under="no_grad"),
        "AGV128 another-mode",
    ),
    wrong(
        "memory_y:sample_mean_with_rollouts_logged",
        "sample_mean",
        "sum and count logged for the trainer to merge, as Megatron's loss functions do",
        Witness("1/1+1/1", "0 1"),
        "AGV511 units-counted-per-cell wrong-normaliser",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "memory_y:group_denominators_kept_per_counts",
        "prompt_mean",
        "a cache under everything that its values are made of",
    ),
    right(
        "memory_y:weights_in_a_wiped_workspace",
        "token_mean",
        "a preallocated buffer of a fused kernel, cleared before use",
    ),
    right(
        "memory_y:kl_over_rollouts_of_the_step",
        "sequence_sum",
        "a KL term with the objective's own count, skipped where there is nothing",
    ),
    right(
        "memory_y:constant_with_late_gradient",
        "constant",
        "a fused sum that multiplies by what its backward is given",
    ),
    right(
        "memory_y:token_mean_with_counts_logged",
        "token_mean",
        "sum and count logged for the trainer to merge, as Megatron's loss functions do",
    ),
    right(
        "memory_y:sample_mean_with_a_lean_validation_path",
        "sample_mean",
        "validation without a graph, in place in a copy of its own",
    ),
)
