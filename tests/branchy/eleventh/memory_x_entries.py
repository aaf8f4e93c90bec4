"""The entries of ``memory_x``: where each is met, and how a mistake shows."""

from __future__ import annotations

from tests.branchy.eleventh.base import right, wrong
from tests.branchy.fresh.base import Fresh
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "memory_x:group_sizes_remembered_by_prompt",
        "prompt_mean",
        "a dictionary by prompt id in a trainer; the data set's ids come again in the next epoch",
        Witness("1/1", before=(Witness("1/11"),)),
        "AGV408 AGV208 state-between-steps",
    ),
    wrong(
        "memory_x:step_loss_from_recent_values",
        "token_sum",
        "a smoothed-value meter with a bounded deque (torchvision's) used to add up a window",
        Witness(
            "; ".join(["1/1"] * 17),
            " ".join(map(str, range(17))),
        ),
        "AGV511 AGV513 logged-in-part",
    ),
    wrong(
        "memory_x:token_mean_with_safe_pair",
        "token_mean",
        "Megatron-style (sum, count) reporting, the count clamped where it is made, not merged",
        Witness("1/1", cp=2),
        "AGV511 AGV513 wrong-normaliser empty-micro-batch-counted",
    ),
    wrong(
        "memory_x:share_of_positive_from_float_copy",
        "constant",
        "metrics of mixed-precision trainers: .float() copies 16-bit losses, but not float32 ones",
        Witness("1/10", dtype="float32", watch=True),
        "AGV502 arguments-changed",
    ),
    wrong(
        "memory_x:rollout_tokens_found_in_validation",
        "sample_mean",
        "multi-turn validation, whose loader does not prepare the step's counts",
        Witness("1/1+1/1", "0 1", under="no_grad"),
        "AGV128 partial-rollouts",
    ),
    wrong(
        "memory_x:penalty_projected_from_the_first",
        "sequence_sum",
        "a KL penalty written for fixed micro-batch sizes, kept under dynamic batching",
        Witness("1/1; 1/1; 1/1", "0 1,2", term=0),
        "AGV207 AGV202 AGV203 AGV204 AGV205 AGV206 AGV112 AGV141 auxiliary-local-count "
        "units-counted-per-cell",
    ),
    wrong(
        "memory_x:scale_captured_after_warm_up",
        "token_mean",
        "CUDA graphs captured per input size after warm-up: Python numbers become constants",
        Witness("1/11", before=(Witness("1/1; 1/1; 1/1", "0 1 2"), Witness("1/10"))),
        "AGV408 AGV208 state-between-steps",
    ),
    wrong(
        "memory_x:rollout_means_in_blocks",
        "sample_mean",
        "chunked fused losses (as liger's): whole chunks in forward, a gradient of its own",
        Witness("1/1{513}"),
        "AGV102 remainder-dropped",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "memory_x:shares_remembered_by_count",
        "sample_mean",
        "a memoised pure function of all that it depends on",
    ),
    right(
        "memory_x:step_loss_from_all_values",
        "token_sum",
        "progress meters that report once a window and are emptied at its start",
    ),
    right(
        "memory_x:scaled_in_its_own_buffer",
        "constant",
        "in-place arithmetic on fresh tensors, to save memory with long contexts",
    ),
    right(
        "memory_x:rollout_sums_in_blocks",
        "sequence_sum",
        "chunked fused losses with a backward of their own, and a short way for small inputs",
    ),
    right(
        "memory_x:penalty_beside_the_policy",
        "prompt_mean",
        "a KL penalty with the policy's own normaliser, logged beside the loss",
    ),
    right(
        "memory_x:token_mean_with_honest_pair",
        "token_mean",
        "Megatron-style (sum, count) reporting, where a piece without tokens counts none",
    ),
)
