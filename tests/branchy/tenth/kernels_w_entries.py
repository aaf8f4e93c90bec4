"""What is known of the reducers of kernels_w."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.tenth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "kernels_w:gradient_made_while_chunking",
        "sample_mean",
        "fused chunked losses (liger style): a loss is the last node, so its factor seems to be 1",
        Witness("1/1{257}", scale=1024.0),
        "AGV126",
    ),
    wrong(
        "kernels_w:owners_from_marked_starts",
        "sample_mean",
        "varlen packing: owners of tokens by a cumulative sum; two starts fall on one token",
        Witness("1/1; 1/1111", cp=2),
        "AGV201 AGV204 AGV205",
    ),
    wrong(
        "kernels_w:prompt_table_in_one_float_tensor",
        "prompt_mean",
        "metadata of a batch packed into one float32 tensor for one copy; ids are hashes or large",
        Witness("1/1; 1/11", groups=(2**24, 2**24 + 1)),
        "AGV101 AGV112 AGV202 AGV203 AGV204 AGV205 AGV301",
    ),
    wrong(
        "kernels_w:halved_until_one_is_left",
        "constant",
        "tree reductions by halves: one variable for the odd element of every level",
        Witness("1/1; 1/1; 1/1; 1/1; 1/1; 1/1; 1/1"),
        "AGV101 AGV112 AGV141 AGV202 AGV203 AGV204 AGV205 remainder-dropped",
    ),
    wrong(
        "kernels_w:partial_sums_in_a_grown_buffer",
        "prompt_mean",
        "two-stage reductions: the buffer of partial sums is reused, and reduced as a whole",
        Witness("1/1{129}; 1/1", "0 1"),
        "AGV102 AGV202 AGV204 AGV205 AGV407 AGV408 state-between-steps",
    ),
    wrong(
        "kernels_w:turns_from_a_span_table",
        "token_sum",
        "multi-turn kernels that take spans in a static shape, for CUDA graphs or torch.compile",
        Witness("1/1" + "01" * 16),
        "AGV101 AGV142 AGV201 AGV204",
    ),
    wrong(
        "kernels_w:idle_tiles_are_not_launched",
        "sequence_sum",
        "skipping blocks of zero advantage in a fused loss that carries the KL term too",
        Witness("1/1{65}", term=0),
        "AGV101 AGV131 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV207"
        " auxiliary-left-out not-linear",
    ),
    wrong(
        "kernels_w:tile_sums_stored_scaled",
        "token_mean",
        "float16 training: partial sums in half, under a static loss scale of the kernel's own",
        Witness("1/1", dtype="float16", losses=(100.0,)),
        "AGV101 AGV102 AGV104 AGV133 AGV202 AGV203 AGV204 AGV301",
    ),
    wrong(
        "kernels_w:step_count_in_the_compute_dtype",
        "token_mean",
        "kernels that make all their scalars in the autocast dtype, the token count among them",
        Witness("1/1{257}", under="autocast"),
        "AGV129 AGV301 counted-in-16-bits",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "kernels_w:chunked_with_its_own_backward",
        "token_sum",
        "fused chunked losses: only long inputs take the function, and its result may be scaled",
    ),
    right(
        "kernels_w:owners_from_counted_starts",
        "sample_mean",
        "varlen packing: starts are counted with index_add, so that empty pieces may coincide",
    ),
    right(
        "kernels_w:prompt_table_in_integers",
        "prompt_mean",
        "segment sums by prompt: ids stay int64, and equal counts are written repeatedly",
    ),
    right(
        "kernels_w:halved_with_a_zero_for_the_odd",
        "constant",
        "tree reductions by halves, padded where a level is odd",
    ),
    right(
        "kernels_w:masked_tiles_are_not_launched",
        "token_mean",
        "skipping blocks in a fused loss with the KL term: by the mask, not by values",
    ),
    right(
        "kernels_w:partial_sums_in_a_shared_workspace",
        "sequence_sum",
        "two-stage reductions: a workspace that is never cleared, and read as far as written",
    ),
)
