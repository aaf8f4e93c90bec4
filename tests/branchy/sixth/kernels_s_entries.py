"""What is known of each reducer of ``kernels_s``."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.sixth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "kernels_s:gradients_kept_by_span",
        "prompt_mean",
        "fused losses that make gradients in forward: multi-turn rows take another path",
        Witness("1/101", scale=1024.0),
        "AGV126",
    ),
    wrong(
        "kernels_s:masked_tiles_left_out",
        "constant",
        "block tables of masked kernels: a byte seems enough for a tile of 256",
        Witness("1/1{256}"),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV206 AGV301",
    ),
    wrong(
        "kernels_s:chunks_averaged_and_scaled_back",
        "sequence_sum",
        "chunked losses: torch.chunk may return fewer chunks than it was asked for",
        Witness("1/1{257}"),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV206",
    ),
    wrong(
        "kernels_s:counts_in_the_metadata_tensor",
        "sample_mean",
        "kernel metadata in one float32 tensor: ids of a long run are beyond 2**24",
        Witness("1/1; 1/11", rollouts=(16777216, 16777217)),
        "AGV101 AGV202 AGV203 AGV204 AGV205 AGV206 AGV301",
    ),
    wrong(
        "kernels_s:replayed_once_warm",
        "token_mean",
        "CUDA graphs of a loss by shape: a Python number is a constant of the capture",
        Witness("1/10", before=(Witness("1/11"), Witness("1/11"), Witness("1/11"))),
        "AGV408 AGV208 state-between-steps",
    ),
    wrong(
        "kernels_s:penalty_by_blocks_of_rows",
        "sample_mean",
        "the KL term of a fused loss in row blocks: unfold leaves out what fills no block",
        Witness("1/1 1/1; 1/1 1/1; 1/1", term=0),
        "AGV207 AGV101 auxiliary-left-out remainder-dropped",
    ),
    wrong(
        "kernels_s:metric_added_up_beside_the_loss",
        "token_sum",
        "metrics of a chunk loop begun with new_zeros: their dtype is that of the losses",
        Witness("1/1{255} 1/11 1/1", dtype="bfloat16", losses=(1.0,)),
        "AGV511 AGV301",
    ),
    wrong(
        "kernels_s:tiles_launched_in_lockstep",
        "token_mean",
        "a collective in the chunk loop under context parallelism: ranks have as many tokens",
        Witness("150/1{450}", cp=2),
        "AGV404 AGV402 AGV201 AGV204 conditional-collective",
    ),
    wrong(
        "kernels_s:longest_packed_first",
        "prompt_mean",
        "bin packing by length: the order is applied again where its inverse is due",
        Witness("1/1; 1/111; 1/11"),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV206",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "kernels_s:gradients_kept_by_tile",
        "token_mean",
        "fused losses that make gradients in forward, the last tile shorter than the others",
    ),
    right(
        "kernels_s:tiles_launched_as_often_as_the_longest",
        "sequence_sum",
        "a collective in the chunk loop, its number agreed on first",
    ),
    right(
        "kernels_s:chunks_added_in_a_wide_total",
        "token_sum",
        "chunked losses with a metric of the loop: fewer chunks may come than asked for",
    ),
    right(
        "kernels_s:longest_packed_first_and_put_back",
        "prompt_mean",
        "bin packing by length, for fewer bins of a fixed shape",
    ),
    right(
        "kernels_s:penalty_by_filled_blocks_of_rows",
        "constant",
        "the KL term of a fused loss in row blocks, as its kernel wants whole ones",
    ),
    right(
        "kernels_s:rows_cached_by_shape",
        "sample_mean",
        "index plans of packed batches are kept by shape: making them costs a synchronisation",
    ),
)
