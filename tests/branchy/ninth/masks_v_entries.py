"""Entries about masks and divisors."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.ninth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "masks_v:sparse_rows_trimmed",
        "token_mean",
        "verl-like batch trimming: the width from the sum of the mask, which holes make too small",
        Witness("1/001"),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 edge-token-dropped "
        "remainder-dropped",
    ),
    wrong(
        "masks_v:even_rows_by_group_size",
        "prompt_mean",
        "GRPO with fixed lengths: a fast path that looks at this micro-batch, not at the group",
        Witness("1/1 1/11", "0 1"),
        "AGV112 AGV141 AGV142 AGV202 AGV203 AGV204 AGV206 row-means-in-a-group another-mode",
    ),
    wrong(
        "masks_v:scaled_by_reciprocals",
        "sample_mean",
        "float16 RL training: the epsilon of float32 code, inverted, cast to the losses' dtype",
        Witness("1/0", dtype="float16"),
        "AGV104 AGV111 AGV301 AGV302 no-floor",
    ),
    wrong(
        "masks_v:idle_pieces_stay_attached",
        "token_sum",
        "slime, miles: a zero for a micro-batch whose samples were all filtered, so FSDP goes on",
        Witness("1/00", dtype="float16", losses=(60000.0, 60000.0)),
        "AGV104 AGV111 AGV121 AGV123 AGV201 AGV202 AGV203 AGV204 keep-alive multiply-by-mask "
        "masked-values-reported",
    ),
    wrong(
        "masks_v:penalty_of_responses_not_dropped",
        "sample_mean",
        "DAPO overlong filtering beside a KL term: the first token tells whether all are masked",
        Witness("1/01", term=0),
        "AGV101 AGV112 AGV141 AGV142 AGV207 auxiliary-left-out",
    ),
    wrong(
        "masks_v:logs_sum_and_tokens",
        "token_mean",
        "TRL, NeMo-RL metrics: a floor on every piece's count, though counts are added up later",
        Witness("1/1; 1/0", "0 1"),
        "AGV112 AGV201 AGV202 AGV203 AGV204 AGV511 AGV513 empty-micro-batch-counted "
        "phantom-tokens wrong-normaliser",
    ),
    wrong(
        "masks_v:padded_within_buckets",
        "prompt_mean",
        "length-bucketed padding: half-open buckets end at the length of truncated responses",
        Witness("1/1{2048}"),
        "AGV101 AGV141 AGV142 rows-not-covered remainder-dropped",
    ),
    wrong(
        "masks_v:places_looked_up_by_shape",
        "constant",
        "multi-turn masks on GPU: nonzero() waits for the device, so its result is remembered",
        Witness("1/01", before=(Witness("1/10"),)),
        "AGV121 AGV122 AGV123 AGV124 AGV142 AGV202 AGV203 AGV204 AGV205 AGV408 state-between-steps",
    ),
    wrong(
        "masks_v:long_prefixes_skipped",
        "sequence_sum",
        "agent loops with forced prefixes: an offset into the whole response cuts a rank's piece",
        Witness("1/0{8}1{8}", cp=2),
        "AGV141 AGV142 AGV201 AGV204 shard-cut-wrongly edge-token-dropped",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "masks_v:solid_spans_sliced",
        "sequence_sum",
        "multi-turn rollouts: most responses have no hole, and a slice needs no index",
    ),
    right(
        "masks_v:full_rows_as_rectangle",
        "sample_mean",
        "single-turn batches of one length: one reduction, rollouts' denominators all the same",
    ),
    right(
        "masks_v:padded_within_open_buckets",
        "prompt_mean",
        "length-bucketed padding that keeps whatever is longer than the configured edges",
    ),
    right(
        "masks_v:logs_floor_for_empty_steps",
        "token_mean",
        "metrics as sum and count: the floor is for a step whose samples were all filtered",
    ),
    right(
        "masks_v:penalty_beside_what_is_kept",
        "constant",
        "overlong filtering beside a KL term, with the whole mask asked",
    ),
    right(
        "masks_v:sparse_rows_cut_after_last",
        "token_sum",
        "batch trimming by the last column in use, so that holes do no harm",
    ),
)
