"""Entries of ``memory_s``: what is kept between calls, and what is logged."""

from __future__ import annotations

from tests.branchy.sixth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG = (
    wrong(
        "memory_s:token_pair_by_batch_shape",
        "token_mean",
        "metric code that saves a device sync on mask.sum(): responses cut at one length differ "
        "in tool output only",
        Witness("1 1; 1 0", "0,1 2,3"),
        "AGV511 AGV408 state-between-steps wrong-normaliser",
    ),
    wrong(
        "memory_s:sum_of_flags_filled_in_arena",
        "token_sum",
        "preallocated workspaces of fused losses: only what is set is written, old flags stay",
        Witness("1{1500}; 1{999}0", "0 1"),
        "AGV408 state-between-steps AGV407 not-repeatable AGV202 AGV201 AGV203 AGV204 "
        "AGV121 AGV122 AGV123 AGV124 mask-not-applied AGV112 AGV141",
    ),
    wrong(
        "memory_s:prompt_counts_times_device_one",
        "prompt_mean",
        "constants kept per device as in attention kernels: a warm-up in bfloat16 fixes the dtype",
        Witness("1{257}", before=(Witness("1", dtype="bfloat16"),)),
        "AGV301 counted-in-16-bits AGV408 state-between-steps AGV101",
    ),
    wrong(
        "memory_s:kl_scale_set_at_window_start",
        "token_mean",
        "a KL coefficient per window in trainers with accumulation; leaving early for a batch "
        "without tokens also leaves out the setup",
        Witness("0; 11", "0 1", term=0),
        "AGV207 auxiliary-left-out AGV408 state-between-steps AGV208 AGV112 AGV202 AGV201 AGV203 "
        "AGV204 AGV205",
    ),
    wrong(
        "memory_s:largest_group_beside_constant",
        "constant",
        "group statistics in GRPO logs: itertools.groupby wants sorted ids, and list.sort() "
        "sorts the trainer's own list",
        Witness("1; 1; 1", groups=(7, 3, 7), watch=True),
        "AGV502 arguments-changed",
    ),
    wrong(
        "memory_s:loss_flushed_after_last_micro_batch",
        "sequence_sum",
        "trainers that log once per optimizer step: the early return for an empty micro-batch "
        "stands before the flush",
        Witness("1; 0", "0 1"),
        "AGV511 logged-in-part AGV408 state-between-steps",
    ),
    wrong(
        "memory_s:step_tokens_reduced_once_per_share",
        "token_mean",
        "a global token count cached over PPO epochs to save an all-reduce, under a key that "
        "each rank makes of its own share",
        Witness("1; 11", "0 | 1", before=(Witness("1; 1", "0 | 1"),)),
        "AGV404 conditional-collective AGV402 AGV408 state-between-steps AGV208 AGV203 AGV204",
    ),
    wrong(
        "memory_s:prompt_tokens_in_id_ring",
        "prompt_mean",
        "a fixed table by prompt id, as for per-prompt baselines: ids are dataset rows, not "
        "consecutive numbers",
        Witness("1; 11", groups=(0, 1024)),
        "AGV101 AGV205 AGV202 AGV203 AGV204",
    ),
    wrong(
        "memory_s:rollout_weights_scaled_where_they_lie",
        "sample_mean",
        "liger-style losses that scale the stored gradient in place in backward; here it is a "
        "cached tensor",
        Witness("1; 1", "0 1", scale=1024.0),
        "AGV126 AGV408 state-between-steps AGV407 not-repeatable AGV202",
    ),
)

RIGHT = (
    right(
        "memory_s:rollout_denominators_by_content",
        "sample_mean",
        "denominators cached by all they are made of, so that epochs over one batch reuse them",
    ),
    right(
        "memory_s:rollout_sums_of_flags_copied_to_arena",
        "sequence_sum",
        "a preallocated workspace whose whole piece is written before it is read",
    ),
    right(
        "memory_s:window_total_in_its_last_log",
        "constant",
        "logging once per optimizer step: zeros but for the last micro-batch, which has all",
    ),
    right(
        "memory_s:token_pair_by_mask_identity",
        "token_mean",
        "an id()-keyed table that lives no longer than the masks; the pair has this rank's own",
    ),
    right(
        "memory_s:kl_share_set_before_leaving",
        "prompt_mean",
        "KL penalty with a share set up at each window's start, before any early return",
    ),
    right(
        "memory_s:rollout_weights_scaled_aside",
        "sample_mean",
        "a fused loss with a backward of its own, whose cached weights are never written to",
    ),
)
