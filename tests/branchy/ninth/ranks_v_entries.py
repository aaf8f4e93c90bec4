"""What is known of the reducers over ranks and layouts."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.ninth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "ranks_v:masks_cut_where_pieces_begin",
        "sequence_sum",
        "CP slicing of masks (slime, Megatron): written for contiguous pieces, kept for zigzag",
        Witness("1/1110000", cp=2),
        "AGV201 AGV204 AGV121 AGV123 AGV141 AGV142 shard-cut-wrongly",
    ),
    wrong(
        "ranks_v:samples_told_by_falling_positions",
        "sample_mean",
        "varlen packing: boundaries read off position ids, as before flash-attention kernels",
        Witness("1/1; 1/1111", cp=2),
        "AGV201 AGV204 AGV205 AGV112 AGV141 AGV142",
    ),
    wrong(
        "ranks_v:rollouts_gathered_in_equal_shares",
        "constant",
        "all_gather of ids wants one shape; a negative pad crops without a word (balanced batches)",
        Witness("1/1; 1/1; 1/1; 1/1", "0,1,2 | 3"),
        "AGV203 AGV204 AGV205",
    ),
    wrong(
        "ranks_v:penalty_by_the_share_of_the_rank",
        "sample_mean",
        "KL beside the policy loss (verl): local over global batch size as the rank's share",
        Witness("1/1+1/1; 1/1", "0,1 | 2", term=0),
        "AGV207 AGV203 AGV204 AGV205 auxiliary-local-count",
    ),
    wrong(
        "ranks_v:groups_completed_where_split",
        "prompt_mean",
        "prompt groups dealt to ranks (miles, SkyRL): no collective where groups are whole",
        Witness("1/1+1/1", "0 | 1"),
        "AGV203 AGV204 AGV205 AGV206 AGV402 AGV404 conditional-collective partial-groups",
    ),
    wrong(
        "ranks_v:count_sent_in_the_type_of_the_losses",
        "token_mean",
        "asynchronous count beside the sum: .to() is no copy in float64 tests, and one in training",
        Witness("1/1; 1/1", "0 | 1", dtype="float32"),
        "AGV203 AGV204 counted-where-it-stands",
    ),
    wrong(
        "ranks_v:tokens_added_as_gradients_are",
        "token_mean",
        "FSDP's reduce_dtype used for the token count as well: one setting for all communication",
        Witness("1/1{257}; 1/1", "0 | 1"),
        "AGV203 AGV204 AGV301 counted-in-16-bits",
    ),
    wrong(
        "ranks_v:logged_by_the_first_of_a_node",
        "token_sum",
        "is_local_main_process around logging (accelerate), in a trainer that adds logs up",
        Witness("1/1; 1/1", "0 | 1", where="launched"),
        "AGV405 AGV412 AGV511 copies-disagree logged-in-part",
    ),
    wrong(
        "ranks_v:counts_from_the_place_in_the_window",
        "prompt_mean",
        "counts made once a step, then micro-batch i at i * size (before dynamic batching)",
        Witness("1/1; 1/1; 1/1; 1/11", "0 1,2 3"),
        "AGV202 AGV204 AGV205 list-runs-out zip-without-strict",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "ranks_v:masks_taken_at_their_positions",
        "sequence_sum",
        "CP slicing of masks by the positions that the losses were cut with, for every layout",
    ),
    right(
        "ranks_v:counts_after_all_micro_batches_before",
        "prompt_mean",
        "counts made once a step, sliced by how many samples the micro-batches before really have",
    ),
    right(
        "ranks_v:rollouts_gathered_in_the_largest_share",
        "constant",
        "all_gather of ids of uneven shards: the longest list decides the shape, on all ranks",
    ),
    right(
        "ranks_v:logged_alike_on_all_ranks",
        "token_sum",
        "a log all-reduced over every rank and divided by their number, right for copies and parts",
    ),
    right(
        "ranks_v:summed_before_the_count_arrives",
        "token_mean",
        "an overlapped all-reduce of the count, waited for before an early return for no tokens",
    ),
    right(
        "ranks_v:penalty_joined_piece_by_piece",
        "sample_mean",
        "KL added per token before one division, with an early return for an empty shard",
    ),
)
