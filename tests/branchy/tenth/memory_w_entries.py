"""What is known of the reducers that keep, reuse or report something."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.tenth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "memory_w:count_settles_after_warm_up",
        "token_mean",
        "trainers that warm up to spare a device sync: calls are taken for steps, so one window of "
        "several micro-batches freezes the count",
        Witness("11", before=(Witness("1; 1; 1; 1", "0 1 2 3"),)),
        "AGV408 AGV208 state-between-steps",
    ),
    wrong(
        "memory_w:static_weights_per_shape",
        "sequence_sum",
        "static buffers per packed length, as for CUDA graphs: only unmasked places are written, "
        "masked ones keep what an earlier micro-batch of that length left",
        Witness("11; 10", "0 1"),
        "AGV408 AGV407 AGV202 AGV204 AGV205 AGV121 AGV122 AGV123 AGV124 state-between-steps "
        "not-repeatable multiply-by-mask",
    ),
    wrong(
        "memory_w:sample_means_for_the_dashboard",
        "sample_mean",
        "metrics made of loss.detach().to(float32): a copy for 16 bits only, so that the division "
        "in place reaches the caller's losses otherwise",
        Witness("11", watch=True),
        "AGV502 AGV408 arguments-changed",
    ),
    wrong(
        "memory_w:pair_that_is_safe_to_divide",
        "token_mean",
        "[sum, count] metrics of Megatron-like trainers, where an empty bin or shard logs a count "
        "of 1 against a division by 0",
        Witness("1; 0", "0 1"),
        "AGV511 AGV513 phantom-tokens empty-micro-batch-counted wrong-normaliser",
    ),
    wrong(
        "memory_w:curve_of_samples_on_top",
        "sample_mean",
        "agent rollouts of several samples: the curve of sample means is kept by adding its "
        "detached difference to the loss",
        Witness("1+11"),
        "AGV102 sample-denominators mean-of-sample-means",
    ),
    wrong(
        "memory_w:penalty_once_it_is_felt",
        "constant",
        "KL terms skipped in the first steps, where policy and reference agree: a value of almost "
        "0 has a gradient nonetheless",
        Witness("1", losses=(0.00001,), term=0),
        "AGV207 AGV131 AGV202 AGV203 AGV201 AGV204 auxiliary-left-out not-linear",
    ),
    wrong(
        "memory_w:whole_prompts_in_validation",
        "prompt_mean",
        "evaluation loops that count prompts at hand, since their loaders once kept prompts whole; "
        "dynamic batching splits them",
        Witness("1 1", "0 1", under="no_grad"),
        "AGV128 partial-groups counted-where-it-stands",
    ),
    wrong(
        "memory_w:mean_by_a_running_tally",
        "token_mean",
        "a counter made by losses.new_zeros, hence in the dtype of the losses, in code that "
        "weighs micro-batch means by tokens",
        Witness("1{256}" + "; 1" * 64, dtype="bfloat16"),
        "AGV301 AGV101 AGV201 AGV202 AGV203 AGV204 AGV205 counted-in-16-bits",
    ),
    wrong(
        "memory_w:folded_window_by_window",
        "token_sum",
        "the running total of a log, total.detach() + part, taken over into the loss of packed "
        "micro-batches with many samples",
        Witness("1; 1; 1; 1; 1; 1; 1; 1; 1"),
        "AGV101 AGV112 AGV141 AGV202 AGV203 AGV204 AGV205 gradients-zeroed",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "memory_w:denominators_remembered_whole",
        "prompt_mean",
        "memoised denominators, with every count and the dtype in the key",
    ),
    right(
        "memory_w:arena_wiped_before_use",
        "sequence_sum",
        "workspaces of fused losses, which are wiped where they are used again",
    ),
    right(
        "memory_w:pair_with_its_honest_count",
        "token_mean",
        "[sum, count] metrics of Megatron-like trainers, with a count of 0 for empty bins",
    ),
    right(
        "memory_w:penalty_even_where_it_is_nothing",
        "constant",
        "KL terms of first steps: the value is 0 and the graph is kept",
    ),
    right(
        "memory_w:gradient_saved_in_forward",
        "sample_mean",
        "fused losses with a backward of their own, which passes grad_output on",
    ),
    right(
        "memory_w:windows_with_a_detached_shadow",
        "token_sum",
        "chunked sums with a detached copy for the log, so that nothing is changed in place",
    ),
)
