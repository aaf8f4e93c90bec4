"""The reducers of ``ranks_u``, what is true of each, and a step that shows it."""

from __future__ import annotations

from tests.branchy.eighth.base import right, wrong
from tests.branchy.fresh.base import Fresh
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "ranks_u:shards_pool_the_logged_loss",
        "sample_mean",
        "context-parallel metrics of Megatron-style trainers: copies told from shards by shape",
        Witness("3/111", cp=3, kind="contiguous"),
        "AGV404 AGV402 AGV201 AGV204 AGV511 conditional-collective",
    ),
    wrong(
        "ranks_u:rollouts_of_an_even_share",
        "sequence_sum",
        "FSDP trainers that skip an all-reduce when the batch divides evenly (verl, SkyRL)",
        Witness("1+1; 1; 1", "0,1 | 2,3"),
        "AGV203 AGV204 AGV205 AGV206 units-counted-where-they-stand units-counted-per-cell",
    ),
    wrong(
        "ranks_u:main_process_speaks",
        "token_mean",
        "main-process logging by LOCAL_RANK (TRL, accelerate) in a log that the trainer adds up",
        Witness("1; 1", "0 | 1", where="launched"),
        "AGV412 AGV511 logged-in-part",
    ),
    wrong(
        "ranks_u:prompts_ticked_off_by_uid",
        "prompt_mean",
        "verl's string uids of prompts: a set of them gives the places of a reduced vector",
        Witness("1; 1; 1; 1; 1; 1; 1; 1", "0,1,2,3 | 4,5,6,7", where="launched"),
        "AGV412",
    ),
    wrong(
        "ranks_u:count_taken_with_the_first_piece",
        "token_mean",
        "accumulation windows (DeepSpeed, TRL): a count cached at the first micro-batch, after an "
        "early return for shards without tokens",
        Witness("1; 1/1111", "0 1", cp=2, before=(Witness("1/11111111", cp=2),)),
        "AGV408 AGV208 AGV201 AGV202 AGV203 AGV204 state-between-steps",
    ),
    wrong(
        "ranks_u:masks_cut_by_offset_and_size",
        "token_sum",
        "slime's and Megatron's shards kept as (offset, size), from before zigzag came",
        Witness("1/1101111", cp=2),
        "AGV201 AGV204 AGV121 AGV122 AGV123 AGV124 AGV141 AGV142 shard-cut-wrongly",
    ),
    wrong(
        "ranks_u:counts_in_the_reduce_dtype",
        "token_mean",
        "FSDP's reduce_dtype and DeepSpeed's communication_data_type taken for counts as well",
        Witness("1{257}; 1{257}", "0 | 1"),
        "AGV301 AGV203 AGV204 counted-in-16-bits",
    ),
    wrong(
        "ranks_u:penalty_from_the_last_copy",
        "token_mean",
        "KL beside the policy loss where sequences are gathered over Ulysses or CP ranks (verl)",
        Witness("1", cp=2, kind="gathered", term=0),
        "AGV207 AGV405 AGV201 AGV204 auxiliary-left-out copies-disagree",
    ),
    wrong(
        "ranks_u:groups_all_in_view",
        "prompt_mean",
        "a fast path for whole groups by their ids, where samples are dealt round-robin (miles)",
        Witness("1 1", "0 1"),
        "AGV206 AGV202 AGV203 AGV204 AGV205 partial-groups counted-where-it-stands",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "ranks_u:count_logged_once_per_data_rank",
        "token_mean",
        "sum and count in a log of a Megatron-style trainer that adds them over all ranks",
    ),
    right(
        "ranks_u:rollouts_named_by_every_rank",
        "sequence_sum",
        "agent loops with fan-out: rollouts that straddle ranks, counted by a gather of ids",
    ),
    right(
        "ranks_u:masks_cut_by_place",
        "token_sum",
        "zigzag shards of slime: a slice for adjacent tokens, an index for two chunks",
    ),
    right(
        "ranks_u:step_all_in_view",
        "prompt_mean",
        "a debugging run in one micro-batch counts for itself, any other takes the driver's counts",
    ),
    right(
        "ranks_u:penalty_with_a_kept_factor",
        "constant",
        "KL beside a Dr.GRPO loss, its factor cached by the numbers it is made of",
    ),
    right(
        "ranks_u:every_shard_pools_the_logged_loss",
        "sample_mean",
        "a metric that all context ranks show alike, as SkyRL's after its fix",
    ),
)
