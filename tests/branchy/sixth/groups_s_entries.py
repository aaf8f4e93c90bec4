"""What the reducers of groups_s are, and a step on which each of the first kind shows it."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.sixth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "groups_s:rollouts_matched_beside_the_losses",
        "sample_mean",
        "id tables made by losses.new_tensor to get the device right; the 16-bit dtype comes along",
        Witness("1/1; 1/11", dtype="bfloat16", rollouts=(256, 257)),
        "AGV101 AGV202 AGV203 AGV204 AGV205 AGV301",
    ),
    wrong(
        "groups_s:prompts_counted_as_runs_of_ids",
        "prompt_mean",
        "asynchronous rollouts: a late one of a prompt is appended behind the next prompts",
        Witness("1/1; 1/1; 1/1", groups=(0, 1, 0)),
        "AGV101 AGV205 groups-by-position",
    ),
    wrong(
        "groups_s:turns_keyed_by_rollout_and_length",
        "token_mean",
        "multi-turn agents whose requests are retried: a key for each turn, to drop doubles",
        Witness("1/1+1/1"),
        "AGV101 AGV112 AGV141 AGV142 AGV202 AGV203 AGV204",
    ),
    wrong(
        "groups_s:filtered_prompts_off_the_count",
        "constant",
        "DAPO's dynamic sampling by masks: a prompt of one reward only is emptied, then uncounted",
        Witness("1/1; 1/0"),
        "AGV112 AGV202 AGV203 AGV204 empty-units-left-out",
    ),
    wrong(
        "groups_s:rollout_counts_kept_until_all_are_in",
        "sample_mean",
        "fan-out: counts are read off the device once a rollout and kept for its other samples",
        Witness("1/1; 1/1", before=(Witness("1/11"),)),
        "AGV208 AGV408 state-between-steps",
    ),
    wrong(
        "groups_s:rollouts_counted_from_gathered_ids",
        "sequence_sum",
        "all_gather wants equal lengths, and id tensors are padded with pad's default of 0",
        Witness("1/1; 1/1; 1/1", "0,1 | 2", rollouts=(5, 6, 7)),
        "AGV203 AGV204 AGV205",
    ),
    wrong(
        "groups_s:kl_by_prompt_tokens_of_the_rank",
        "prompt_mean",
        "a kl term added later, with counts of the rank's data iterator, before groups were split",
        Witness("1/1 1/1", "0 | 1", term=0),
        "AGV142 AGV203 AGV204 AGV206 AGV207 auxiliary-local-count counted-after-rejection "
        "partial-groups",
    ),
    wrong(
        "groups_s:prompts_of_each_piece_logged",
        "prompt_mean",
        "logs as sum and count, the count by what is at hand: a split prompt is counted twice",
        Witness("1/1 1/1", "0 1"),
        "AGV511 units-counted-per-cell wrong-normaliser",
    ),
    wrong(
        "groups_s:distinct_rollouts_logged_by_sorting",
        "token_sum",
        "a statistic of fan-out: ids sorted to count runs, in the list that the trainer handed out",
        Witness("1/1; 1/1", rollouts=(7, 3), watch=True),
        "AGV502 arguments-changed",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "groups_s:rollouts_in_runs_after_sorting",
        "sample_mean",
        "fan-out by groupby, which needs sorted ids: places are sorted, and nothing in place",
    ),
    right(
        "groups_s:prompts_added_up_by_integer_ids",
        "prompt_mean",
        "scatter by prompt id, with ids as int64 and the whole prompt's tokens in the table",
    ),
    right(
        "groups_s:ids_gathered_with_their_number",
        "sequence_sum",
        "all_gather of ids, padded to equal lengths and cut again, for a statistic in the log",
    ),
    right(
        "groups_s:turns_listed_by_rollout_and_length",
        "token_mean",
        "multi-turn samples bucketed by rollout and length; the buckets hold lists",
    ),
    right(
        "groups_s:prompts_of_the_step_logged_once",
        "prompt_mean",
        "logs as sum and count, of which the count is the step's and given by one place",
    ),
    right(
        "groups_s:filtered_prompts_kept_in_the_count",
        "constant",
        "dynamic sampling by masks with a kl term: emptied prompts take a path without a division",
    ),
)
