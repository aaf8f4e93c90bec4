"""The entries of ``ranks_t``."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.seventh.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "ranks_t:shard_mask_from_its_first_place",
        "sample_mean",
        "slime's slices for contiguous context parallelism, used again where ranks hold two chunks",
        Witness("1/1111110", cp=2),
        "AGV201 AGV204 AGV121 AGV122 AGV123 AGV124 AGV141 AGV142 shard-cut-wrongly",
    ),
    wrong(
        "ranks_t:distinct_rollouts_of_filled_up_ranks",
        "constant",
        "verl's and SkyRL's uneven ranks: all_gather wants one size, and 0 is what buffers hold",
        Witness("1/1; 1/1; 1/1", "0,1 | 2", rollouts=(1, 2, 3)),
        "AGV203 AGV204 AGV205 AGV206",
    ),
    wrong(
        "ranks_t:mean_of_a_rank_by_its_share",
        "token_mean",
        "prime-rl and torchtitan: a global rank where the group's is meant, before there was cp",
        Witness("1/1; 1/11", "0 | 1", cp=2),
        "AGV201 AGV203 AGV204 AGV205 AGV206 AGV112",
    ),
    wrong(
        "ranks_t:sum_over_a_launch",
        "token_sum",
        "TRL-like scripts for DDP: WORLD_SIZE from torchrun, 1 elsewhere, to undo an average",
        Witness("1/1; 1/1", "0 | 1", where="launched"),
        "AGV412 AGV203 AGV201 AGV204 dp-counted-twice cp-counted-twice",
    ),
    wrong(
        "ranks_t:counts_in_the_communication_dtype",
        "token_mean",
        "DeepSpeed's communication_data_type: counts ride in the bucket of the gradients",
        Witness("1/1{129}; 1/1{128}", "0 | 1"),
        "AGV301 AGV203 AGV204 AGV206 counted-in-16-bits",
    ),
    wrong(
        "ranks_t:incomplete_groups_counted_over_ranks",
        "prompt_mean",
        "miles' and SkyRL's split prompt groups: communication saved where a group is whole",
        Witness("1/1 1/1; 1/1", "0 | 1 | 2"),
        "AGV402 AGV403 AGV404 AGV203 AGV204 AGV205 AGV206 conditional-collective partial-groups",
    ),
    wrong(
        "ranks_t:window_logged_with_its_last",
        "sequence_sum",
        "Megatron-like loops that log once a window; an early return for masked micro-batches",
        Witness("1/1; 1/0", "0 1"),
        "AGV511 AGV408 AGV407 logged-in-part state-between-steps",
    ),
    wrong(
        "ranks_t:shards_without_a_token_left_out",
        "constant",
        "slime's short responses under context parallelism: empty masks are filtered from a list",
        Witness("1/1", cp=2, watch=True),
        "AGV502 arguments-changed",
    ),
    wrong(
        "ranks_t:denominators_of_distinct_rollouts",
        "sample_mean",
        "NeMo-RL- and TRL-like scatter means: a set for the values, torch.unique for the index",
        Witness("1/1; 1/11", rollouts=(8, 1)),
        "AGV101 AGV205 AGV202 AGV203 AGV204 AGV206 AGV112 sorted-by-id",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "ranks_t:shard_mask_by_its_places",
        "sample_mean",
        "slime's zigzag slices, indexed token by token so that every layout is one case",
    ),
    right(
        "ranks_t:distinct_rollouts_of_cut_back_ranks",
        "constant",
        "verl's uneven ranks: lengths are gathered with the ids, and the filling is cut off",
    ),
    right(
        "ranks_t:whole_responses_on_every_rank",
        "sequence_sum",
        "GSPO-like code that needs whole responses: all-reduced forward and backward, then shared",
    ),
    right(
        "ranks_t:groups_counted_from_all_tables",
        "prompt_mean",
        "miles' split prompt groups: all ranks exchange tables, also those with nothing to add",
    ),
    right(
        "ranks_t:window_logged_at_its_end",
        "sample_mean",
        "Megatron-like loops that log once a window; what is held begins anew with each window",
    ),
    right(
        "ranks_t:both_terms_over_the_tokens_of_all_ranks",
        "token_mean",
        "NeMo-RL after #3791: KL and policy over one count, all-reduced in integers",
    ),
)
