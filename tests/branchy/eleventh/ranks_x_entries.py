"""What is said of the reducers of ``ranks_x``: where they are met, and on which step they err."""

from __future__ import annotations

from tests.branchy.eleventh.base import right, wrong
from tests.branchy.fresh.base import Fresh
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "ranks_x:first_token_owner_counts_rollouts",
        "sample_mean",
        "slime-like logs of sum and count: who holds a response's first token counts its rollout",
        Witness("1/1+1/1", "0 | 1"),
        "AGV511 wrong-normaliser units-counted-per-cell",
    ),
    wrong(
        "ranks_x:group_columns_reduced_asynchronously",
        "prompt_mean",
        "tables of statistics all-reduced by column, as backends ask for contiguous tensors",
        Witness("1/1 1/1; 1/1", "0,2 | 1"),
        "AGV203 AGV204 AGV206 AGV112 partial-groups",
    ),
    wrong(
        "ranks_x:share_of_a_launched_replica",
        "constant",
        "torchrun scripts that take WORLD_SIZE for the data-parallel size, from before they had CP",
        Witness("1/11", cp=2, where="launched"),
        "AGV412 AGV201 AGV204 cp-scaling-missing",
    ),
    wrong(
        "ranks_x:cut_rollouts_told_to_other_ranks",
        "sample_mean",
        "multi-turn trainers that count split rollouts for a log, and save the all-reduce if none",
        Witness("1/1+1/1; 1/1; 1/1", "0 1 | 2 3"),
        "AGV402 AGV403 AGV404 conditional-collective",
    ),
    wrong(
        "ranks_x:group_counts_in_one_payload",
        "prompt_mean",
        "ids and counts packed into one float tensor to save a collective, as metrics often are",
        Witness("1/1; 1/11", "0 | 1", groups=(16777216, 16777217)),
        "AGV203 AGV204 AGV205",
    ),
    wrong(
        "ranks_x:penalty_by_tokens_of_the_rank",
        "token_mean",
        "a KL term added later to a token mean, by the masked mean of a data-parallel rank",
        Witness("1/1; 1/11", "0 | 1", term=0),
        "AGV207 AGV203 AGV204 AGV112 auxiliary-local-count mean-over-dp-ranks",
    ),
    wrong(
        "ranks_x:count_of_the_opening_micro_batch",
        "sequence_sum",
        "accumulation windows that reset at their first micro-batch, if it is no filler",
        Witness(
            "1/1; 1/11111111",
            "0 1",
            cp=2,
            before=(Witness("1/11111111; 1/11111111; 1/11111111", "0 1,2", cp=2),),
        ),
        "AGV408 AGV208 state-between-steps",
    ),
    wrong(
        "ranks_x:pieces_without_unlabelled_ends",
        "token_sum",
        "contiguous sequence parallelism (Ulysses), after labels were shifted on each rank",
        Witness("1/111", cp=2, kind="contiguous"),
        "AGV201 AGV204 edge-token-dropped",
    ),
)

RIGHT = (
    right(
        "ranks_x:group_counts_in_awaited_buckets",
        "prompt_mean",
        "bucketed all-reduces as in DDP, each of which is waited for",
    ),
    right(
        "ranks_x:rollouts_gathered_where_the_step_has_parts",
        "sample_mean",
        "multi-turn trainers that gather ids and counts in integers, asked for by a global count",
    ),
    right(
        "ranks_x:penalty_by_a_share_of_ranks",
        "token_mean",
        "a KL term by the masked mean of a rank, weighed by its tokens where shards are uneven",
    ),
    right(
        "ranks_x:rollouts_counted_on_the_first_rank",
        "sequence_sum",
        "logs of sum and count that are added up over ranks: a global count belongs to one of them",
    ),
    right(
        "ranks_x:scale_of_the_window",
        "constant",
        "accumulation windows that work out their scale once, whatever the first micro-batch holds",
    ),
    right(
        "ranks_x:halves_of_a_piece_added_apart",
        "token_sum",
        "zigzag context parallelism of ring attention, where a piece is two chunks",
    ),
)
