"""What is expected of the reducers around rollouts, prompt groups and their ids."""

from __future__ import annotations

from tests.branchy.eighth.base import right, wrong
from tests.branchy.fresh.base import Fresh
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "groups_u:group_means_by_packed_meta",
        "prompt_mean",
        "verl-like meta tensors: ids (worker << 32 | counter) packed with lengths as float32",
        Witness("1/1; 1/11", groups=(2**32, 2**32 + 1)),
        "AGV101 AGV202 AGV203 AGV204 AGV205 AGV301",
    ),
    wrong(
        "groups_u:fixed_length_without_filler",
        "constant",
        "verl's pad to a multiple of the ranks: rollouts rejected whole look like the padding",
        Witness("1/1; 1/0", "0 | 1"),
        "AGV112 AGV141 AGV203 AGV204 AGV205 empty-units-left-out",
    ),
    wrong(
        "groups_u:sums_logged_over_runs_of_turns",
        "sequence_sum",
        "multi-turn metrics in slime: turns of a rollout are taken to stand side by side",
        Witness("1/1 1/1 1/1", rollouts=(0, 1, 0)),
        "AGV511 wrong-normaliser units-counted-per-cell",
    ),
    wrong(
        "groups_u:sum_without_trailing_copies",
        "token_sum",
        "pad_dataproto_to_divisor and its like copy the first row: equal branches look like it",
        Witness("1/1+1/1+1/1+1/1"),
        "AGV101 AGV112 AGV141 AGV142 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "groups_u:group_means_with_remembered_counts",
        "prompt_mean",
        "data set rows as group ids: truncated responses of the next epoch have the same length",
        Witness("1/10", before=(Witness("1/11"),)),
        "AGV208 AGV408 state-between-steps",
    ),
    wrong(
        "groups_u:group_means_from_complete_groups",
        "prompt_mean",
        "SkyRL-like prompt boundaries: samples compared with n_samples_per_prompt rollouts",
        Witness("1/1+1/1 1/1", "0,1 2"),
        "AGV112 AGV141 AGV202 AGV203 AGV204 AGV206 partial-groups",
    ),
    wrong(
        "groups_u:kl_by_turns_of_a_rollout",
        "sample_mean",
        "KL of multi-turn rollouts in NeMo-RL and the like: a mean over turns is thought the same",
        Witness("1/1+1/11", term=0),
        "AGV112 AGV141 AGV207 auxiliary-local-count partial-rollouts sample-denominators",
    ),
    wrong(
        "groups_u:mean_from_tables_of_rollouts",
        "token_mean",
        "verl's fallback without batch_num_tokens: rollouts counted in the losses' dtype",
        Witness("1/1{300}", dtype="bfloat16"),
        "AGV101 AGV201 AGV202 AGV203 AGV301 counted-in-16-bits",
    ),
    wrong(
        "groups_u:group_means_counted_over_ranks",
        "prompt_mean",
        "verl's uids are strings: their set gives the places in a vector that is all-reduced",
        Witness("1/1; 1/11; 1/111; 1/1111; 1/11111", "0,3 | 1,2,4", where="launched"),
        "AGV412",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "groups_u:rollout_means_by_compact_ids",
        "sample_mean",
        "fan-out in miles: scatter by id, compacted in int64, counts taken from the step",
    ),
    right(
        "groups_u:group_means_from_undivided_groups",
        "prompt_mean",
        "SkyRL-like prompt boundaries: a group is whole when all its samples are here",
    ),
    right(
        "groups_u:kl_over_runs_of_turns",
        "sample_mean",
        "kl of multi-turn rollouts: turns are added up where they stand, then divided alike",
    ),
    right(
        "groups_u:group_means_logged_where_groups_begin",
        "prompt_mean",
        "slime's logged pairs: a group that is split is counted where it begins",
    ),
    right(
        "groups_u:mean_from_counted_rollouts",
        "token_mean",
        "verl's fallback without batch_num_tokens, counted in integers of the full masks",
    ),
    right(
        "groups_u:fixed_length_of_rows_sent_once",
        "constant",
        "rows that dispatch repeats are known by their number, not by what they hold",
    ),
)
