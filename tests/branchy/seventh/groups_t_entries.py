"""What is right and wrong of ``groups_t``, written before anything was run."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.seventh.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "groups_t:prompt_slots_of_a_ring",
        "prompt_mean",
        "a table of prompts by loader index modulo the batch; dynamic sampling leaves gaps in it",
        Witness("1/1; 1/11", groups=(0, 2)),
        "AGV101 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "groups_t:rollouts_keyed_by_metadata",
        "sample_mean",
        "ids travel in the float32 metadata tensor of a batch, next to rewards (multi-turn agents)",
        Witness("1/1+1/1; 1/1", rollouts=(2**24, 2**24, 2**24 + 1)),
        "AGV101 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "groups_t:turns_in_rows_of_a_rollout",
        "sample_mean",
        "view(rollouts, turns) of a multi-turn batch, tested on environments of fixed length",
        Witness("1/1; 1/11+1/1+1/1"),
        "AGV101 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "groups_t:prompt_counts_of_this_step",
        "prompt_mean",
        "an accumulator in a trainer's loss function, with an early return before its reset",
        Witness("1/11", before=(Witness("1/1 1/0", "0 1"),)),
        "AGV408 AGV208 state-between-steps",
    ),
    wrong(
        "groups_t:prompts_agreed_on_by_ranks",
        "prompt_mean",
        "a sync of split prompts that saves the all-reduce on ranks that have none (DP striping)",
        Witness("1/1 1/1; 1/1", "0 | 1 | 2"),
        "AGV402 AGV403 AGV404 AGV203 AGV204 AGV206 conditional-collective",
    ),
    wrong(
        "groups_t:kl_over_a_share_of_rollouts",
        "constant",
        "batch per rank times world size as the KL's normaliser; the filter leaves ranks uneven",
        Witness("1/1; 1/1; 1/1", "0,1 | 2", term=0),
        "AGV207 AGV203 AGV204 auxiliary-local-count units-counted-where-they-stand",
    ),
    wrong(
        "groups_t:new_rollouts_in_the_log",
        "sequence_sum",
        "per-key normalisers of a log, in a trainer that balances turns of a rollout over ranks",
        Witness("1/1+1/1", "0 | 1"),
        "AGV511 AGV513 wrong-normaliser units-counted-per-cell",
    ),
    wrong(
        "groups_t:tokens_added_rollout_by_rollout",
        "token_mean",
        "losses.new_zeros as the accumulator of a count, as in gradient accumulation loops",
        Witness("1/1{256}" + " 1/1" * 24, dtype="bfloat16"),
        "AGV301 AGV101 counted-in-16-bits",
    ),
    wrong(
        "groups_t:prompts_present_on_any_rank",
        "prompt_mean",
        "uids are strings in verl's batches; a table in the order of their set is all-reduced",
        Witness("; ".join(["1/1"] * 12), "0,1,2,3,4,5 | 6,7,8,9,10,11", where="launched"),
        "AGV412",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "groups_t:prompts_by_unique_integers",
        "prompt_mean",
        "torch.unique of int64 ids with its inverse, as scatter-based advantage code does",
    ),
    right(
        "groups_t:turns_in_rows_that_are_checked",
        "sample_mean",
        "a reshape for fixed-length environments that looks whether the rows are rollouts",
    ),
    right(
        "groups_t:tokens_with_one_count_in_the_log",
        "token_mean",
        "a log as sum and count where only one piece of the step brings the count along",
    ),
    right(
        "groups_t:kl_with_the_shares_of_its_policy",
        "prompt_mean",
        "policy and KL share one table of weights, cached by all that it is made of",
    ),
    right(
        "groups_t:sums_of_rollouts_that_were_kept",
        "token_sum",
        "rows picked by index after dynamic sampling, added up turn by turn in order of ids",
    ),
    right(
        "groups_t:constant_over_runs_of_a_prompt",
        "constant",
        "a fused segment sum with a backward of its own, as in kernels of packed batches",
    ),
)
