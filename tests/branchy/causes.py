"""What may be said of each reducer that nothing was tuned to: codes, and known bugs by their names.

Judged by reading each reducer, by one who had seen what runs say of them. Wrong with one
micro-batch on one rank already is AGV101, and no layout's code then; a code of a layout is right
where its control passes, that is where pieces or micro-batches of a step are what goes wrong.
Those of ``fresh`` and all later folders stand with each reducer, by whoever wrote it, before any
run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.branchy.corpora import WRONG
from tests.branchy.fresh.base import Fresh

STATE = "AGV408 state-between-steps"
NOT_LINEAR = "AGV131 not-linear"
LEFT_OUT = "AGV101 samples-dropped"
COLLECTIVE = "AGV404 AGV402 conditional-collective"
RANKS = "AGV203 AGV204"
MICRO_BATCHES = "AGV202 AGV203 AGV204"

_CAUSES: Mapping[str, str] = {
    # untuned
    "mean_over_sample_chunks": "AGV101",
    "grid_rounded": "AGV101",
    "stops_at_empty_block": LEFT_OUT,
    "rest_of_one_is_lost": LEFT_OUT,
    "halves_drop_the_odd_one": "AGV101",
    "backward_of_last_chunk": "AGV101",
    "sixteen_sequences": "AGV101",
    "eight_turns": "AGV101",
    "index_with_capacity": f"AGV101 AGV201 {MICRO_BATCHES}",  # of a piece's own density
    "whole_by_its_ends": "AGV101",
    "cut_by_no_padding": LEFT_OUT,
    "overlong_counts_less": "AGV101",
    "longest_bucket_cuts": "AGV101",
    "one_token_is_a_scalar": f"AGV101 {MICRO_BATCHES}",
    "nearly_equal_rows_are_cut": "AGV101",
    "sorted_without_masks": "AGV101 AGV205",
    "no_signal_is_left_out": NOT_LINEAR,
    "zeros_are_padding": NOT_LINEAR,
    "positions_in_bfloat16": "AGV301",
    "counts_in_float16": "AGV101 AGV301 counted-in-16-bits",
    "counts_multiplied_in_int32": "AGV301",
    "a_thousand_ids": "AGV101",
    "prompts_from_group_size": "AGV101",
    "windows_of_eight": "AGV202",
    "own_mean_without_grad": "AGV128",
    "autocast_divides_again": "AGV129",
    "means_times_counts_in_half": "AGV301 counted-in-16-bits",
    "remembered_by_kind": STATE,
    "remembered_by_address": STATE,
    "set_in_turn": f"AGV208 configured-window {STATE}",
    "local_world_size": "AGV203 AGV201 AGV412",
    "rank_of_environment": "AGV203 AGV412",
    "mean_over_threads": "AGV412",
    "reduced_in_set_order": "AGV412",
    "owner_by_hash": "AGV412",
    "smoothed_later": STATE,
    "ranks_by_bit_length": RANKS,
    "nodes_of_four": f"AGV201 {RANKS}",
    "more_than_one_node": f"AGV201 {RANKS}",
    "even_share_of_tokens": RANKS,
    "alone_without_cp": f"AGV101 {MICRO_BATCHES}",
    "short_ones_count_locally": "AGV201 AGV204 counted-where-it-stands",
    "leaves_before_the_collective": COLLECTIVE,
    "logs_its_own_mean": "AGV513 AGV511",
    "logs_whole_counts": "AGV513 AGV511",
    "logs_share_of_micro_batch": "AGV513 AGV511",
    # unread
    "chunks_by_their_length": "AGV101",
    "kernel_without_its_tail": "AGV101",
    "falls_back_to_another_mean": STATE,
    "pairs_of_rows": LEFT_OUT,
    "denominators_of_another_chunk": "AGV101",
    "largest_graph_takes_the_rest": "AGV101",
    "thirty_two_slots": LEFT_OUT,
    "last_layer_has_gradient_one": "AGV126",
    "whole_warps": "AGV101",
    "two_starts_in_one_place": "AGV201 AGV204",
    "unsorted_with_the_sorting_order": "AGV101 AGV205",
    "dense_rows_are_rollouts": "AGV101",
    "neighbours_make_a_bucket": f"{LEFT_OUT} AGV205",
    "boundaries_from_counts": "AGV205 AGV141",  # a dummy of the first prompt stands behind others
    "denominators_in_order_of_appearance": "AGV101 AGV205",
    "sorted_as_text": "AGV101 AGV205",
    "denominators_by_length": "AGV101",
    "even_batches": RANKS,
    "mean_of_equal_lengths": f"AGV101 {MICRO_BATCHES}",
    "first_sample_is_dense": "AGV101",
    "halving_doubling_counts": RANKS,
    "returns_before_the_collective": COLLECTIVE,
    "first_sample_tells_the_layout": "AGV201 AGV202 AGV204 AGV205",
    "rollouts_per_rank": RANKS,
    "gathered_on_one_node": "AGV201 cp-scaling-missing",
    "world_rounded_up": RANKS,
    "eight_ways": "AGV204",
    "masks_cut_in_zigzag": "AGV201",
    "names_in_a_set": "AGV412",
    "balanced_batches": MICRO_BATCHES,
    "groups_that_are_complete": f"AGV206 AGV401 {MICRO_BATCHES} {STATE}",  # a graph is kept
    "counts_known_by_their_prefix": f"AGV101 {STATE}",
    "group_tokens_of_an_earlier_step": STATE,
    "counts_up_to_the_maximum": "AGV101",
    "epsilon_in_the_packed_path": "AGV101",
    "nothing_times_a_mean": "AGV104 no-floor",
    "empty_samples_left_out": "AGV112",
    "zero_over_zero_made_zero": "AGV111 guard-on-the-result",
    "another_path_for_bfloat16": "AGV101",
    "slots_by_hash": "AGV101",
    "ids_as_float32": "AGV101",
    "spiky_losses_are_clamped": NOT_LINEAR,
    "sorts_the_callers_lengths": "AGV502 arguments-changed",
    "signed_words": "AGV101",
    "one_turn_is_dense": "AGV101 AGV201",  # a piece begins where a response does not
    "eight_turns_at_most": "AGV101",
    "mean_of_turns": "AGV101",
    "overlong_responses_filtered": LEFT_OUT,
    "context_window": "AGV101",
    "no_logit_without_a_prompt": "AGV101",
    "complete_by_number": f"AGV206 {MICRO_BATCHES}",
    "rollouts_by_their_runs": "AGV205 AGV141",
    "sparse_masks_are_gathered": "AGV401",
    "groups_without_signal_left_out": NOT_LINEAR,
    "first_and_last_only": "AGV101",
    "window_of_the_first_step": f"AGV208 configured-window {STATE}",
    "logged_as_the_window_is": "AGV511 AGV513 metric-before-a-rescale",
    "logged_with_one_token_each": "AGV511 AGV513 wrong-normaliser",
    "another_loss_in_validation": "AGV128",
    "divergence_over_local_tokens": "AGV207 auxiliary-local-count",
    "divided_by_the_longest": "AGV101 AGV202 padded-width",
    "sum_or_mean_by_table": "AGV202 AGV204",
    "float32_in_production": f"AGV101 {MICRO_BATCHES}",
}
CAUSES = {name: frozenset(words.split()) for name, words in _CAUSES.items()}
CAUSES |= {entry.name: entry.causes for entry in WRONG if isinstance(entry, Fresh)}


def is_found(name: str, row: Mapping[str, Any]) -> bool:
    """Whether a run of the reducer ends with exit 1 and what it says last is there: the bug that it
    names, or the code where it names none."""
    findings: Sequence[Mapping[str, Any]] = row["findings"]
    return row["exit"] == 1 and bool(findings) and said(findings[-1]) in CAUSES[name]


def said(finding: Mapping[str, Any]) -> str:
    """The bug, or the code where the formula is told and no bug is known to be it."""
    bug = str(finding.get("bug") or "")
    return bug if bug != "another-formula" and bug else str(finding["code"])
