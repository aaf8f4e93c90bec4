"""Reducers of ranks and micro-batches: what is wrong with each, and where it is met."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.sixth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "ranks_s:counts_sent_by_the_first_cp_rank",
        "sample_mean",
        "Megatron's data broadcast: one rank reads the counts, sent in the dtype of reductions",
        Witness("1/1{257}", cp=2),
        "AGV301 AGV201 AGV204 counted-in-16-bits",
    ),
    wrong(
        "ranks_s:kl_share_of_even_ranks",
        "sequence_sum",
        "verl's actor: the KL term scaled by the rank's share, to save an all-reduce",
        Witness("1/1+1/1", "0 | 1", term=0),
        "AGV207 AGV203 AGV204 auxiliary-local-count units-counted-where-they-stand "
        "units-counted-per-cell",
    ),
    wrong(
        "ranks_s:own_tokens_without_fan_out",
        "sample_mean",
        "slime and miles: the path without sample denominators, taken where no id repeats",
        Witness("1/1+1/1", "0 1"),
        "AGV202 AGV203 AGV204 partial-rollouts sample-denominators",
    ),
    wrong(
        "ranks_s:chunks_from_both_ends",
        "token_sum",
        "zigzag slices in Megatron and slime: two chunks of equal length, the prompt forgotten",
        Witness("1/1111111", cp=2),
        "AGV201 AGV204 shard-cut-wrongly",
    ),
    wrong(
        "ranks_s:checked_where_sequences_are_cut",
        "token_mean",
        "slime's cp_utils: a check of the slices, skipped by who has nothing cut",
        Witness("1/1", cp=2),
        "AGV404 AGV402 AGV401 AGV201 AGV204 conditional-collective",
    ),
    wrong(
        "ranks_s:pair_counted_on_the_first_cp_rank",
        "token_mean",
        "Megatron's loss_func returns sum and count; written for slices, then used with a gather",
        Witness("1/1", cp=2, kind="gathered"),
        "AGV511 metric-summed-over-cp wrong-normaliser",
    ),
    wrong(
        "ranks_s:logged_by_the_main_process",
        "prompt_mean",
        "TRL and torchtitan scripts: only RANK 0 logs, while the trainer adds up all ranks' logs",
        Witness("1/1; 1/1", "0 | 1", where="launched"),
        "AGV412 AGV511 logged-in-part",
    ),
    wrong(
        "ranks_s:slot_for_every_prompt_name",
        "prompt_mean",
        "NeMo-RL-like tables by prompt name: slots by a set's order, another in each process",
        Witness("1/111; 1/1111; 1/11111; 1/111111; 1/1111111", cp=2, where="launched"),
        "AGV412 AGV201 AGV204 AGV405",
    ),
    wrong(
        "ranks_s:nominal_micro_batch_size",
        "constant",
        "verl before dynamic batches: a micro-batch has the nominal size, the last one the rest",
        Witness("1/1; 1/1; 1/1", "0 1,2"),
        "AGV202 AGV204 AGV205",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "ranks_s:slot_for_every_sorted_prompt",
        "prompt_mean",
        "tables of counts by sorted id, sent by one rank: every process has the same slots",
    ),
    right(
        "ranks_s:own_count_of_an_undivided_step",
        "token_mean",
        "OpenRLHF-like fast path for one rank and one micro-batch, with context parallelism in it",
    ),
    right(
        "ranks_s:runs_between_jumps",
        "token_sum",
        "zigzag slices in slime: chunks are found by their positions, not by their length",
    ),
    right(
        "ranks_s:kl_over_all_rollouts",
        "sequence_sum",
        "verl's actor: the KL term divided as the policy's is, with a short cut for one rank",
    ),
    right(
        "ranks_s:checked_on_all_ranks",
        "constant",
        "slime's cp_utils: a check that every rank takes part in, and a log of the node",
    ),
    right(
        "ranks_s:own_tokens_without_fan_out_anywhere",
        "sample_mean",
        "slime and miles: the path without sample denominators, chosen by the whole step",
    ),
)
