"""The wrong ones of prompts and counting: a step each is wrong on, and what is true of it."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.later.base import wrong
from tests.branchy.unread.witness import Witness

PROMPTS = (
    wrong(
        "prompts_b:names_in_bytes",
        "prompt_mean",
        "uid tensors in uint8, from when a step had fewer than 256 prompts",
        Witness("1; 11", groups=(0, 256)),
        "AGV101 AGV204 AGV205 another-formula",
    ),
    wrong(
        "prompts_b:prompts_by_the_first_fan_out",
        "prompt_mean",
        "P as rollouts over n_samples_per_prompt, read off the first sample",
        Witness("1; 1 1 1"),
        "AGV101 AGV202 AGV203 AGV204 AGV205 AGV206 another-formula prompts-from-rollouts",
    ),
    wrong(
        "prompts_b:found_by_bisection",
        "prompt_mean",
        "searchsorted over ids that were sorted before batches were shuffled",
        Witness("1; 11", groups=(1, 0)),
        "AGV101 AGV205 sorted-by-id",
    ),
    wrong(
        "prompts_b:incomplete_prompts_count_in_part",
        "prompt_mean",
        "partial rollouts: prompts with aborted answers trusted less",
        Witness("1 1; 1"),
        "AGV101 AGV202 AGV203 AGV204 AGV205 another-formula",
    ),
    wrong(
        "prompts_b:turns_that_are_elsewhere",
        "sample_mean",
        "several turns as samples, whose tokens are added up per micro-batch",
        Witness("1+11", "0 1"),
        "AGV202 AGV203 AGV204 partial-rollouts another-formula counted-where-it-stands",
    ),
    wrong(
        "prompts_b:prompts_by_name_and_length",
        "prompt_mean",
        "prompts told apart by id and length, with turns whose prompts grow",
        Witness("1/1 2/11"),
        "AGV101 AGV202 AGV203 AGV204 another-formula",
    ),
)
TALLIES = (
    wrong(
        "tallies_b:tokens_with_a_loss",
        "token_mean",
        "count_nonzero of the masked losses for a count of tokens",
        Witness("11", losses=(1.0, 0.0)),
        "AGV101 AGV131 AGV201 AGV202 AGV203 AGV204 not-linear another-formula",
    ),
    wrong(
        "tallies_b:tokens_of_an_even_shard",
        "token_mean",
        "num_tokens // cp_size, from batches padded to a multiple of the shards",
        Witness("111", cp=2),
        "AGV201 AGV204 another-formula",
    ),
    wrong(
        "tallies_b:rollouts_of_full_batches",
        "constant",
        "ceil(N / ranks) * ranks, as a DistributedSampler without drop_last has it",
        Witness("1; 1; 1", "0,1 | 2"),
        "AGV203 AGV204 another-formula dummy-rows-counted",
    ),
    wrong(
        "tallies_b:lengths_of_the_step",
        "sequence_sum",
        "a dict by length for a report, whose len() is taken for the rollouts",
        Witness("1 1"),
        "AGV101 another-formula",
    ),
    wrong(
        "tallies_b:no_length_above_the_cap",
        "token_sum",
        "an overlong rule: no response weighs more than an old maximum length",
        Witness("1{600}"),
        "AGV101 another-formula",
    ),
    wrong(
        "tallies_b:window_counts_of_at_least_one",
        "token_mean",
        "window counts that were floored for the division of each micro-batch, added up",
        Witness("1; 0", "0 1"),
        "AGV112 AGV202 AGV204 phantom-tokens count-floored empty-micro-batch-counted "
        "another-formula",
    ),
)
WRONG_B: tuple[Fresh, ...] = (*PROMPTS, *TALLIES)
