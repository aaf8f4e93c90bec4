"""What is true of the reducers of ``memory_v``, written down before any run."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.ninth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "memory_v:layout_of_recurring_shapes",
        "sample_mean",
        "Megatron-style packing and slime: index and weight tensors cached by shape, as a kernel "
        "cache does; masks of tool calls differ at one shape",
        Witness("1/11 1/11 1/10 1/11", "0,1 2,3"),
        "AGV202 AGV204 AGV205 AGV408 AGV142 AGV112 state-between-steps",
    ),
    wrong(
        "memory_v:weights_in_a_growing_workspace",
        "prompt_mean",
        "Megatron's global memory buffer, verl's padded buffers: allocated once, zeroed only when "
        "allocated, to save a fill per micro-batch",
        Witness("1/1; 1/0", "0 1"),
        "AGV202 AGV204 AGV205 AGV208 AGV408 AGV112 AGV121 AGV122 AGV123 AGV124 AGV141 "
        "state-between-steps mask-not-applied",
    ),
    wrong(
        "memory_v:rollouts_logged_at_first_sight",
        "sample_mean",
        "SkyRL's and miles' fan-out: a set of rollouts already counted keeps the metric's count "
        "right over micro-batches of a rank",
        Witness("1/1+1/1", "0 | 1"),
        "AGV511 AGV513 AGV203 AGV204 units-counted-per-cell wrong-normaliser",
    ),
    wrong(
        "memory_v:kl_chunk_by_chunk",
        "constant",
        "chunked kl in OpenRLHF and liger style losses: the running value is detached to bound "
        "memory, as one does for a metric",
        Witness("1/1{513}", term=0),
        "AGV207 AGV101 AGV102 AGV201 AGV202 AGV203 AGV204 AGV205 AGV141 AGV142 AGV112",
    ),
    wrong(
        "memory_v:gradient_ready_after_forward",
        "token_mean",
        "liger's fused cross entropy: backward multiplies by grad_output only if need be; here "
        "only if dtypes agree, so as not to promote 16-bit gradients",
        Witness("1", dtype="bfloat16", scale=1024.0),
        "AGV126",
    ),
    wrong(
        "memory_v:validation_over_what_was_answered",
        "sequence_sum",
        "evaluation loops of TRL and torchtitan: validation averages over what has a label, a "
        "habit from supervised fine-tuning",
        Witness("1/1; 1/0", under="no_grad"),
        "AGV128 empty-units-left-out",
    ),
    wrong(
        "memory_v:prompts_in_the_log",
        "prompt_mean",
        "metrics of verl and NeMo-RL: ids are sorted for groupby, and list.sort is taken for "
        "sorted",
        Witness("1; 1", groups=(1, 0), watch=True),
        "AGV502 arguments-changed",
    ),
    wrong(
        "memory_v:replayed_once_it_is_warm",
        "token_mean",
        "CUDA graphs in Megatron-LM and torchtitan: three eager calls, then a capture in which "
        "Python numbers are baked in",
        Witness("1; 1", "0 1", before=(Witness("1"), Witness("1"), Witness("1"))),
        "AGV408 AGV208 state-between-steps",
    ),
    wrong(
        "memory_v:running_sum_over_samples",
        "token_sum",
        "gradient accumulation in DeepSpeed trainers: a running loss made by new_zeros of the "
        "losses, added to in place",
        Witness("1 1 1", dtype="bfloat16", losses=(256.0, 1.0, 1.0)),
        "AGV301 AGV302 AGV102 AGV104",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "memory_v:layout_of_recurring_counts",
        "sample_mean",
        "the cache of denominators with all that they are made of in its key",
    ),
    right(
        "memory_v:weights_in_a_cleared_workspace",
        "prompt_mean",
        "a global memory buffer, zeroed on every use and copied before autograd saves it",
    ),
    right(
        "memory_v:gradient_scaled_in_backward",
        "sequence_sum",
        "a fused loss as liger's, scaled in float32 before the gradient is rounded to 16 bits",
    ),
    right(
        "memory_v:kl_summed_over_chunks",
        "constant",
        "chunked kl whose running sum stays in the graph, logged as a share of the step",
    ),
    right(
        "memory_v:tokens_logged_where_they_are",
        "token_mean",
        "metrics of miles and slime: a sum and a count, of this rank's own tokens",
    ),
    right(
        "memory_v:plan_kept_once_it_is_warm",
        "sample_mean",
        "a captured plan of indices, with counts given to each replay; the report is a copy",
    ),
)
