"""Reducers that keep something between calls, that log, or that add a term: what is so of each."""

from __future__ import annotations

from tests.branchy.eighth.base import right, wrong
from tests.branchy.fresh.base import Fresh
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "memory_u:prompt_shares_from_table",
        "prompt_mean",
        "tables cached without the dtype in their key, as rotary tables are: scored in bfloat16, "
        "trained in float32",
        Witness("1/111", before=(Witness("1/111", dtype="bfloat16"),)),
        "AGV408 AGV301 state-between-steps",
    ),
    wrong(
        "memory_u:loss_logged_in_bundles",
        "token_mean",
        "trainers that log every few accumulation steps and at the end; the flush forgets to empty",
        Witness("1/1 1/1 1/1 1/1 1/1", "0 1 2 3 4"),
        "AGV511 running-total-logged",
    ),
    wrong(
        "memory_u:constant_with_cleaned_log",
        "constant",
        "metrics beside a Dr. GRPO loss: .to() was a copy as long as the losses were bfloat16",
        Witness("1/10", watch=True),
        "AGV502 arguments-changed",
    ),
    wrong(
        "memory_u:sequence_sum_fused",
        "sequence_sum",
        "fused losses whose backward multiplies what forward saved in place, under a loss scaler",
        Witness("1/1 1/1", "0 1", scale=1024.0),
        "AGV126 AGV202 AGV204 AGV407 AGV408 state-between-steps not-repeatable",
    ),
    wrong(
        "memory_u:sample_mean_by_first_look",
        "sample_mean",
        "multi-turn agents whose context is compacted now and then: set up lazily on first call",
        Witness("1/1+1/1", before=(Witness("1"),)),
        "AGV202 AGV203 AGV204 AGV205 AGV408 state-between-steps partial-rollouts "
        "sample-denominators",
    ),
    wrong(
        "memory_u:prompt_mean_with_spread_kl",
        "prompt_mean",
        "a KL penalty with expanded denominators cached by shape, as packing metadata is",
        Witness("1/10; 1/11", "0 1", term=0),
        "AGV207 AGV202 AGV204 AGV205 AGV408 state-between-steps",
    ),
    wrong(
        "memory_u:token_mean_with_remembered_total",
        "token_mean",
        "saves an all-reduce a micro-batch; rows packed full give a rank the same count each step",
        Witness("1/1; 1/11", "0 | 1", before=(Witness("1/1; 1/1", "0 | 1"),)),
        "AGV402 AGV404 AGV408 conditional-collective state-between-steps",
    ),
    wrong(
        "memory_u:token_sum_without_repeats",
        "token_sum",
        "batches padded to the number of ranks by repeated rows, as verl and SkyRL pad theirs",
        Witness("1/1+1/1"),
        "AGV101 AGV112 AGV141 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "memory_u:sample_mean_by_growing_table",
        "sample_mean",
        "tables grown on demand, as position tables are, with indices clamped to be safe",
        Witness("1/1{128}", before=(Witness("1"),)),
        "AGV101 AGV202 AGV203 AGV204 AGV205 AGV407 AGV408 state-between-steps not-repeatable",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "memory_u:token_sum_by_kept_positions",
        "token_sum",
        "position tables grown on demand, to cut padded rows without a new arange each time",
    ),
    right(
        "memory_u:sample_mean_by_list_identity",
        "sample_mean",
        "metadata kept by id() over the epochs of one batch; the object is kept and compared",
    ),
    right(
        "memory_u:sequence_sum_by_ones",
        "sequence_sum",
        "fused losses with a gradient buffer that is grown and only read",
    ),
    right(
        "memory_u:loss_logged_and_emptied",
        "token_mean",
        "trainers that log every few accumulation steps and at the end",
    ),
    right(
        "memory_u:prompt_mean_with_keyed_kl",
        "prompt_mean",
        "a kl penalty that shares cached denominators, keyed by all they are made of",
    ),
    right(
        "memory_u:constant_with_copied_log",
        "constant",
        "metrics beside a Dr. GRPO loss, cleaned in place in a copy",
    ),
)
