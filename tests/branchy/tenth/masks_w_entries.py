"""What is true of the reducers of ``masks_w``."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.tenth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "masks_w:turn_table_of_a_response",
        "token_sum",
        "multi-turn agent loops: a table of max_turns columns, and retries that make more turns",
        Witness("1/10101010101010101"),
        "AGV101 AGV142 AGV201 AGV204 edge-token-dropped remainder-dropped",
    ),
    wrong(
        "masks_w:matrix_if_all_are_as_long",
        "sample_mean",
        "equal-length fast path from before context parallelism: full lengths asked, not pieces",
        Witness("1/1111; 5/1110", cp=2, kind="contiguous"),
        "AGV201 AGV202 AGV203 AGV204 AGV205 AGV112 AGV141 AGV142 shard-cut-wrongly",
    ),
    wrong(
        "masks_w:added_up_by_length_bucket",
        "sequence_sum",
        "length-bucketed batches: intervals closed at both ends, truncated responses on the edge",
        Witness(f"1/{'1' * 128}"),
        "AGV101 AGV141 AGV142",
    ),
    wrong(
        "masks_w:unmasked_sum_of_dense_batches",
        "constant",
        "all-ones fast path of masked_mean helpers: the mask was cast to the losses' dtype before",
        Witness("1/1{300}01{300}", dtype="bfloat16"),
        "AGV101 AGV112 AGV121 AGV122 AGV123 AGV124 AGV141 AGV201 AGV202 AGV203 AGV204 AGV206 "
        "AGV301 counted-in-16-bits mask-not-applied",
    ),
    wrong(
        "masks_w:next_count_for_who_has_tokens",
        "prompt_mean",
        "overlong filtering masks whole samples, which are then skipped beside a list that is not",
        Witness("1/0; 1/11"),
        "AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV206",
    ),
    wrong(
        "masks_w:kl_up_to_the_end",
        "sequence_sum",
        "the KL term of single-turn code (all before the first EOS) with masks of tool calls",
        Witness("1/101", term=0),
        "AGV101 AGV142 AGV201 AGV204 AGV207 auxiliary-left-out",
    ),
    wrong(
        "masks_w:places_remembered_by_shape",
        "sample_mean",
        "nonzero() synchronises with the device, so its result is cached by the packed shape",
        Witness("1/011", before=(Witness("1/110"),)),
        "AGV408 AGV202 AGV204 AGV205 AGV206 AGV112 AGV121 AGV122 AGV123 AGV124 AGV141 AGV142 "
        "state-between-steps",
    ),
    wrong(
        "masks_w:own_mean_by_share",
        "token_mean",
        "dynamic batching: own mean times token share, floored like every other divisor",
        Witness("1/1{1100}; 1/1", "0 1"),
        "AGV201 AGV202 AGV203 AGV204 AGV206",
    ),
    wrong(
        "masks_w:logs_the_sum_beside_tokens",
        "token_mean",
        "Megatron-style [sum, tokens] logs whose count is clamped for the division elsewhere",
        Witness("1/1; 1/0", "0 1"),
        "AGV511 AGV513 phantom-tokens empty-micro-batch-counted wrong-normaliser",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "masks_w:turn_table_with_a_last_column",
        "token_sum",
        "multi-turn agent loops: a table of turns, as narrow as the usual dialogue",
    ),
    right(
        "masks_w:matrix_if_pieces_are_as_long",
        "sample_mean",
        "fast path for equal lengths in packed trainers: the pieces at hand are asked",
    ),
    right(
        "masks_w:joined_by_length_bucket",
        "constant",
        "length-bucketed batches: each response is in the one bucket that bisect gives it",
    ),
    right(
        "masks_w:own_count_for_who_has_tokens",
        "prompt_mean",
        "overlong filtering masks whole samples, which need no floor once they are skipped",
    ),
    right(
        "masks_w:columns_after_the_last_token_cut",
        "token_mean",
        "padded rows trimmed to the last trained column before the loss, to save memory",
    ),
    right(
        "masks_w:kl_of_the_same_places",
        "sequence_sum",
        "policy and KL term (kl) over one selection, which is left out where nothing is masked",
    ),
)
