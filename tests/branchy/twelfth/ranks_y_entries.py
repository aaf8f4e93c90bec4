"""What is said of the reducers in ``ranks_y``."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.twelfth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "ranks_y:mask_from_the_first_owned_token",
        "sequence_sum",
        "zigzag slicing of masks (slime, Megatron): a shard is thought of as start and length",
        Witness("1/1101111", cp=2),
        "AGV201 AGV204 AGV121 AGV122 AGV123 AGV124 AGV141 AGV142 shard-cut-wrongly",
    ),
    wrong(
        "ranks_y:lead_process_reports_the_mean",
        "sample_mean",
        "torchrun scripts (torchtitan, TRL): only local rank 0 logs, as one does with wandb",
        Witness("1/1; 1/1", "0 | 1", where="launched"),
        "AGV412 AGV511 AGV405 logged-in-part copies-disagree",
    ),
    wrong(
        "ranks_y:fillers_off_the_rollout_count",
        "constant",
        "padding to the data-parallel size (verl): fully masked samples are taken for padding",
        Witness("1/1; 1/0", "0 | 1"),
        "AGV203 AGV204 AGV112 AGV141 empty-units-left-out",
    ),
    wrong(
        "ranks_y:count_taken_by_the_opening_micro_batch",
        "token_mean",
        "accumulation loops (TRL, Accelerate): the count is kept for the window, after an early"
        " exit for micro-batches without tokens",
        Witness("1/0; 1/1", "0 1", before=(Witness("1/11"),)),
        "AGV408 AGV208 AGV112 AGV202 AGV204 AGV205 state-between-steps",
    ),
    wrong(
        "ranks_y:unpacked_by_the_packing_order",
        "sample_mean",
        "packing by length (verl's dynamic batches): the order is used again to undo itself",
        Witness("1/1; 3/1; 1/11"),
        "AGV101 AGV202 AGV203 AGV205 AGV112 AGV141 AGV142",
    ),
    wrong(
        "ranks_y:counts_exchanged_when_shares_differ",
        "token_mean",
        "token counts over data-parallel ranks (NeMo-RL, prime-rl): an all-reduce saved where"
        " shards are balanced",
        Witness("1/1; 1/11; 1/111", "0 | 1 | 2"),
        "AGV404 AGV402 AGV203 AGV204 conditional-collective",
    ),
    wrong(
        "ranks_y:gathered_penalty_shared_out",
        "token_sum",
        "Ulysses gathering (verl): the KL term is divided by the copies, the policy's is not",
        Witness("1/1", cp=2, kind="gathered", term=0),
        "AGV201 AGV204 AGV207 cp-scaling-missing",
    ),
    wrong(
        "ranks_y:whole_prompts_counted_on_the_spot",
        "prompt_mean",
        "DAPO with multi-turn rollouts (slime, SkyRL): a group is whole once all its rollouts"
        " have been seen",
        Witness("1/1+1/1", "0 1"),
        "AGV202 AGV203 AGV204 AGV206 AGV112 AGV141 partial-groups partial-rollouts"
        " counted-where-it-stands",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "ranks_y:mask_looked_up_token_by_token",
        "sequence_sum",
        "zigzag slicing of masks (slime, Megatron): full masks indexed by the owned positions",
    ),
    right(
        "ranks_y:unpacked_by_the_inverse_order",
        "sample_mean",
        "packing by length (verl's dynamic batches): undone by the inverse permutation, and logged",
    ),
    right(
        "ranks_y:fillers_kept_in_the_rollout_count",
        "constant",
        "ranks of padding only (verl): they add zero, the cached divisor is a pure function",
    ),
    right(
        "ranks_y:prompts_complete_by_tokens",
        "prompt_mean",
        "DAPO with multi-turn rollouts (slime, SkyRL): a group is whole once its tokens are here",
    ),
    right(
        "ranks_y:shards_add_up_to_their_samples",
        "token_mean",
        "context parallel slicing (Megatron, NeMo-RL): a check of the cut that all shards join",
    ),
    right(
        "ranks_y:gathered_penalty_left_whole",
        "token_sum",
        "Ulysses gathering (verl): the KL term is not divided by copies the engine counts once",
    ),
)
