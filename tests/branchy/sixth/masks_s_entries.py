"""Entries about masks, padded rows, packed boundaries and what is divided by."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.sixth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "masks_s:few_tokens_looked_up",
        "sample_mean",
        "sparse paths of packed losses (cu_seqlens): searchsorted's default side reads naturally",
        Witness("1/00 1/11"),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV206",
    ),
    wrong(
        "masks_s:used_blocks_of_columns",
        "sequence_sum",
        "padded rows trimmed to save memory: with prefix masks used blocks are the first ones",
        Witness("1/0{32}1"),
        "AGV101 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV206",
    ),
    wrong(
        "masks_s:overlong_samples_uncounted",
        "constant",
        "overlong filtering (DAPO, verl, TRL): what was filtered should not dilute the rest",
        Witness("1/1 1/0"),
        "AGV112 AGV141 AGV142 empty-units-left-out",
    ),
    wrong(
        "masks_s:holes_taken_out_again",
        "token_sum",
        "multi-turn rollouts with tool output: the few masked spans are subtracted",
        Witness("1/001", losses=(1e308, 1e308, 1.0)),
        "AGV121 AGV123 AGV302 added-and-subtracted",
    ),
    wrong(
        "masks_s:lengths_less_the_masked",
        "token_mean",
        "token counts over data-parallel ranks: a rank without masks has nothing to exchange",
        Witness("1/1; 1/10", "0 | 1"),
        "AGV202 AGV203 AGV204 AGV402 AGV403 AGV404 conditional-collective",
    ),
    wrong(
        "masks_s:packed_by_cumulative_lengths",
        "prompt_mean",
        "cu_seqlens made with .to(losses), meant for the device, which casts as well",
        Witness("1/1{257}; 1/1", dtype="bfloat16"),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV206 AGV301"
        " counted-in-16-bits",
    ),
    wrong(
        "masks_s:places_kept_by_shape",
        "token_mean",
        "indices of packed batches cached by shape, so that nonzero() need not synchronise",
        Witness("1/01", before=(Witness("1/10"),)),
        "AGV121 AGV123 AGV202 AGV203 AGV204 AGV205 AGV206 AGV408 state-between-steps",
    ),
    wrong(
        "masks_s:penalty_without_its_padding",
        "sequence_sum",
        "unpadding of a KL term: row[:-n] reads well, and no padding at all has its own path",
        Witness("1/1 1/10", term=0),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV206 AGV207 auxiliary-left-out",
    ),
    wrong(
        "masks_s:logged_with_its_own_tokens",
        "token_mean",
        "Megatron's reported [sum, tokens] pair, with the floor that a mean would need",
        Witness("1/1; 1/0", "0 1"),
        "AGV511 AGV513 empty-micro-batch-counted phantom-tokens wrong-normaliser",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "masks_s:few_tokens_by_their_owner",
        "sample_mean",
        "sparse paths of packed losses (cu_seqlens), with boundaries that belong to the next",
    ),
    right(
        "masks_s:blocks_up_to_the_last_used",
        "token_mean",
        "padded rows of the step's width trimmed behind the last used block",
    ),
    right(
        "masks_s:groups_from_left_padded_rows",
        "prompt_mean",
        "left-padded rows, with an early way out for filtered micro-batches",
    ),
    right(
        "masks_s:places_kept_by_content",
        "constant",
        "indices cached by the mask itself: a global that looks like state and is none",
    ),
    right(
        "masks_s:prefixes_sliced_holes_skipped",
        "token_sum",
        "multi-turn rollouts: plain responses are sliced, those with tool output indexed",
    ),
    right(
        "masks_s:penalty_up_to_the_last_token",
        "sequence_sum",
        "unpadding of a KL term by length, which no padding at all does not empty",
    ),
)
