"""What is kept between calls and steps, and what is logged: where met, seen on, and why."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.seventh.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "memory_t:denominators_planned_once_a_packed_shape",
        "sample_mean",
        "packed attention metadata is cached by shape, and the denominators go into the same plan",
        Witness("1/11; 1/10", "0 1"),
        "AGV202 AGV204 AGV205 AGV408 state-between-steps",
    ),
    wrong(
        "memory_t:weights_scattered_into_one_scratch",
        "token_mean",
        "a preallocated weight buffer, cleared once a step to save memsets in accumulation",
        Witness("1/11; 1/10", "0 1"),
        "AGV202 AGV204 AGV205 AGV112 AGV121 AGV122 AGV123 AGV124 mask-not-applied",
    ),
    wrong(
        "memory_t:scale_kept_on_the_device",
        "constant",
        "a table of device scalars, shared by a bf16 evaluation and fp32 training, without a dtype",
        Witness("1/1; 1/1; 1/1", before=(Witness("1/1; 1/1; 1/1", dtype="bfloat16"),)),
        "AGV408 AGV301 AGV302 state-between-steps",
    ),
    wrong(
        "memory_t:kl_divided_by_a_slot_table",
        "prompt_mean",
        "a KL penalty from code that numbered prompts in the batch, not in the data set",
        Witness("1/1; 1/11", groups=(0, 1024), term=0),
        "AGV101 AGV202 AGV203 AGV204 AGV205 AGV207",
    ),
    wrong(
        "memory_t:total_asked_for_when_our_count_is_new",
        "token_mean",
        "an all-reduce a micro-batch shows in profiles, so its answer is kept by what is sent",
        Witness("1/1; 1/11", "0 | 1", before=(Witness("1/1; 1/1", "0 | 1"),)),
        "AGV402 AGV404 AGV408 AGV203 AGV204 conditional-collective state-between-steps",
    ),
    wrong(
        "memory_t:rollouts_logged_when_first_met",
        "sequence_sum",
        "sum and count of an agent trainer's log, where balancing parts the turns of a rollout",
        Witness("1/1+1/1", "0 | 1"),
        "AGV511 AGV513 AGV203 AGV204 units-counted-per-cell units-counted-where-they-stand "
        "wrong-normaliser",
    ),
    wrong(
        "memory_t:fan_out_once_seen_stays",
        "sample_mean",
        "the data's format is found out at run time, as multi-turn samples came to a one-turn loss",
        Witness("1/1+1/1", "0 1", before=(Witness("1/1"),)),
        "AGV202 AGV203 AGV204 AGV205 AGV408 sample-denominators partial-rollouts "
        "state-between-steps",
    ),
    wrong(
        "memory_t:dropped_samples_blanked_for_the_log",
        "token_sum",
        "metrics of a filtered batch: .to(dtype) is taken for a copy, which it is not always",
        Witness("1/1; 1/0", watch=True),
        "AGV502 arguments-changed",
    ),
    wrong(
        "memory_t:gradient_kept_from_forward",
        "token_mean",
        "as in fused linear losses, which compute gradients in forward, for large inputs",
        Witness("1/1{512}", scale=1024.0),
        "AGV126",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "memory_t:denominators_planned_for_these_counts",
        "sample_mean",
        "a cached plan of packed denominators, whose key is everything that it is made of",
    ),
    right(
        "memory_t:scale_kept_for_each_dtype",
        "constant",
        "a table of scalars that saves copies to the device, by value and by dtype",
    ),
    right(
        "memory_t:total_asked_for_once_a_step",
        "token_mean",
        "one all-reduce a step, in the first micro-batch of every rank, kept for the others",
    ),
    right(
        "memory_t:both_parts_by_a_table_of_prompts",
        "prompt_mean",
        "a KL penalty and the policy loss look their prompts up in one table, by the whole id",
    ),
    right(
        "memory_t:rollouts_logged_by_the_first_call",
        "sequence_sum",
        "sum and count are logged, and a count that all ranks know is logged by one call only",
    ),
    right(
        "memory_t:summed_in_chunks_from_a_scratch_mask",
        "token_sum",
        "a chunked sum with a backward of its own, for long packed rows, and a mask buffer reused",
    ),
)
