"""Prompt groups, rollouts and ids: what is claimed of each reducer."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.twelfth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "groups_y:prompts_are_runs_of_the_step",
        "prompt_mean",
        "rollout managers that emit a prompt's samples together, until balancing reorders them",
        Witness("1/1; 1/1; 1/1", groups=(0, 1, 0)),
        "AGV101 AGV112 AGV141 AGV205",
    ),
    wrong(
        "groups_y:rollout_means_by_id_column",
        "sample_mean",
        "tensor-only batches (verl's DataProto): ids become a column in the dtype of the rest",
        Witness("1/1 1/111", rollouts=(256, 257), dtype="bfloat16"),
        "AGV101 AGV112 AGV141 AGV202 AGV203 AGV204 AGV205 AGV301",
    ),
    wrong(
        "groups_y:prompt_tokens_from_a_shared_table",
        "prompt_mean",
        "per-prompt statistics all-reduced as one vector whose places come from a set of uids",
        Witness(
            "1/1; 1/11; 1/111; 1/1111; 1/11111; 1/1{6}; 1/1{7}; 1/1{8}",
            "0,1,2,3 | 4,5,6,7",
            where="launched",
        ),
        "AGV203 AGV412",
    ),
    wrong(
        "groups_y:rollout_tokens_kept_for_the_window",
        "sample_mean",
        "a loss function that caches denominators over an accumulation window, as in slime's hooks",
        Witness("1/1", before=(Witness("1/11"),)),
        "AGV408 state-between-steps",
    ),
    wrong(
        "groups_y:prompts_from_the_fullest_group",
        "prompt_mean",
        "P from N and the group size (slime, miles), mended for one incomplete group",
        Witness("1/1 1/1; 1/1", "0,1 2"),
        "AGV101 AGV112 AGV141 AGV202 AGV203 AGV204 AGV206 prompts-from-rollouts",
    ),
    wrong(
        "groups_y:filler_copies_left_out",
        "constant",
        "samplers repeat samples to divide a batch evenly; the loss removes the copies by a key",
        Witness("1/1+1/1"),
        "AGV101 AGV141 AGV142 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "groups_y:logged_over_rollouts_seen",
        "sequence_sum",
        "slime-like logs of sum and count, where multi-turn rollouts are dealt sample by sample",
        Witness("1/1+1/1", "0 1"),
        "AGV511 AGV513 units-counted-per-cell wrong-normaliser",
    ),
    wrong(
        "groups_y:penalty_per_joined_rollout",
        "sample_mean",
        "a KL penalty added later, that joins the turns of a rollout from the micro-batch at hand",
        Witness("1/1+1/1", "0 1", term=0),
        "AGV202 AGV203 AGV204 AGV207 auxiliary-local-count partial-rollouts",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "groups_y:prompt_means_run_by_run",
        "prompt_mean",
        "segment sums over runs of equal prompt ids, which need not be whole prompts",
    ),
    right(
        "groups_y:rollout_means_by_whole_ids",
        "sample_mean",
        "index_add over unique ids, and a cache of a pure function beside it",
    ),
    right(
        "groups_y:prompt_tokens_from_a_sorted_table",
        "prompt_mean",
        "per-prompt statistics all-reduced as one vector, with places in sorted order",
    ),
    right(
        "groups_y:rollout_sums_in_order_of_ids",
        "sequence_sum",
        "turns of an agent's rollout sorted by id before they are joined",
    ),
    right(
        "groups_y:masked_fillers_left_out",
        "token_mean",
        "filler rows with an empty mask skipped in the loss and in the KL term",
    ),
    right(
        "groups_y:logged_over_every_rollout_of_the_step",
        "constant",
        "logs of a sum and a count, with a count of the step that is told once",
    ),
)
