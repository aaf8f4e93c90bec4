"""Reducers about masks and divisors, where each is met, and a step on which it fails."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.twelfth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "masks_y:unbroken_stretches",
        "sample_mean",
        "run-length encoded tool masks over a packed row: a run is not ended by a sample's end",
        Witness("1/1; 1/101"),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV206",
    ),
    wrong(
        "masks_y:table_of_turns",
        "prompt_mean",
        "multi-turn agents with a fixed table of turns, sized for the longest episode once seen",
        Witness("1/101010101010101010101010101010101"),
        "AGV101 AGV142 AGV201",
    ),
    wrong(
        "masks_y:rows_up_to_their_end",
        "sequence_sum",
        "sequence_mask of padded rows: new_tensor and arange take the losses' dtype",
        Witness("1/1{257}", dtype="bfloat16"),
        "AGV101 AGV141 AGV142 AGV201 AGV301 counted-in-16-bits edge-token-dropped",
    ),
    wrong(
        "masks_y:inside_the_model_length",
        "token_sum",
        "a trainer's max_model_len cut, kept as a constant when the rollout engine's was raised",
        Witness("4095/11"),
        "AGV101 AGV142",
    ),
    wrong(
        "masks_y:mean_of_what_is_left",
        "sample_mean",
        "masked means by nonzero entries: tokens of advantage 0 have a loss of exactly 0",
        Witness("1/110", losses=(0.0, 1.0, 1.0)),
        "AGV101 AGV131 AGV141 AGV142 AGV201 not-linear",
    ),
    wrong(
        "masks_y:sum_beside_its_count",
        "token_mean",
        "Megatron-style [sum, num_tokens] logs, with a floor against 0 / 0 on empty micro-batches",
        Witness("1/1; 1/0", "0 1"),
        "AGV511 AGV513 empty-micro-batch-counted wrong-normaliser",
    ),
    wrong(
        "masks_y:longest_rows_together",
        "prompt_mean",
        "length bucketing before padding: pieces sorted by their own length, counts by another",
        Witness("1/111; 10/11", cp=2),
        "AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV206",
    ),
    wrong(
        "masks_y:rollouts_of_kept_prompts",
        "constant",
        "dynamic sampling that masks filtered prompts: Dr.GRPO's batch taken as what was kept",
        Witness("1/1; 1/0"),
        "AGV112 empty-units-left-out",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "masks_y:stretches_of_each_sample",
        "sample_mean",
        "run-length encoded tool masks over a packed row, ended at every sample's end",
    ),
    right(
        "masks_y:growing_table_of_turns",
        "prompt_mean",
        "multi-turn agents with a table of turns that grows with the longest episode",
    ),
    right(
        "masks_y:rows_from_the_left",
        "sequence_sum",
        "left-padded rows of the step's width, with positions in integers",
    ),
    right(
        "masks_y:pieces_of_a_budget",
        "token_sum",
        "dynamic batching's token budget, summed piece by piece to bound memory",
    ),
    right(
        "masks_y:trimmed_behind_the_last_token",
        "token_mean",
        "remove-padding paths that trim responses, with logs as shares of the step",
    ),
    right(
        "masks_y:picked_where_few_are_trained",
        "constant",
        "sparse agent masks with a KL penalty: gather where few are trained, else torch.where",
    ),
)
