"""What is true of the reducers in groups_w."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.tenth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "groups_w:rollouts_by_tag",
        "sample_mean",
        "rollout ids become string keys in a JSON or Ray store: text sorts 10 before 9",
        Witness("1/1; 1/11", rollouts=(9, 10)),
        "AGV101 AGV112 AGV202 AGV203 AGV204 AGV205 sorted-by-id",
    ),
    wrong(
        "groups_w:groups_of_a_frame",
        "prompt_mean",
        "a pandas column with a gap turns 64-bit prompt hashes into floats: neighbours merge",
        Witness("1/1; 1/1", groups=(2**53, 2**53 + 1)),
        "AGV101 AGV205",
    ),
    wrong(
        "groups_w:rollouts_in_slots",
        "sample_mean",
        "a fused kernel's hash table zeroed by memset, 0 for a free slot, which is an id as well",
        Witness("1/1; 1/11", rollouts=(0, 8)),
        "AGV101 AGV112 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "groups_w:fan_out_of_the_window",
        "sample_mean",
        "slime's and miles' fan-out of a rollout: counted over the rank's window after dealing",
        Witness("1/1+1/1", "0 | 1"),
        "AGV203 AGV204 AGV205 partial-rollouts sample-denominators",
    ),
    wrong(
        "groups_w:groups_counted_by_scatter",
        "prompt_mean",
        "index_add of masks into a buffer made by losses.new_zeros, in bf16 training",
        Witness("1/1{300}", dtype="bfloat16"),
        "AGV101 AGV301 counted-in-16-bits",
    ),
    wrong(
        "groups_w:kept_token_index",
        "prompt_mean",
        "packing to a fixed budget: an index kept by ids and pack length, ids start anew each step",
        Witness("1/11; 1/1", before=(Witness("1/1; 1/11"),)),
        "AGV202 AGV203 AGV204 AGV205 AGV206 AGV408 state-between-steps",
    ),
    wrong(
        "groups_w:rollouts_counted_for_the_log",
        "sequence_sum",
        "Megatron's [sum, count] logs: each micro-batch counts the rollouts it sees",
        Witness("1/1+1/1", "0 1"),
        "AGV511 AGV513 units-counted-per-cell wrong-normaliser",
    ),
    wrong(
        "groups_w:penalty_once_a_rollout",
        "token_mean",
        "multi-turn agents: one KL penalty per rollout was meant, later turns lose theirs",
        Witness("1/1+1/1", term=0),
        "AGV101 AGV112 AGV141 AGV202 AGV203 AGV204 AGV205 AGV207 auxiliary-left-out",
    ),
    wrong(
        "groups_w:without_the_filler",
        "constant",
        "verl's and AReaL's padding to a divisor: filler is last, until lengths are balanced",
        Witness("1/0 1/1"),
        "AGV112 AGV141 AGV202 AGV203 AGV204 AGV205 rows-not-covered remainder-dropped",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "groups_w:rectangle_or_ragged",
        "prompt_mean",
        "a view(-1, G) path as in AReaL, taken only where ids say that it is one",
    ),
    right(
        "groups_w:rollouts_sorted_together",
        "sample_mean",
        "segment sums want sorted ids: everything is sorted by one permutation",
    ),
    right(
        "groups_w:groups_in_buckets",
        "prompt_mean",
        "a hash table as kernels have, free places marked by what is no id",
    ),
    right(
        "groups_w:sequence_share_and_token_pair",
        "sequence_sum",
        "Megatron-like logs: a scalar share and a pair side by side",
    ),
    right(
        "groups_w:cached_by_ids_and_sizes",
        "sample_mean",
        "a cached packing index whose key holds all that it is made of",
    ),
    right(
        "groups_w:filler_by_its_mask",
        "constant",
        "kl penalty beside the policy loss, filler samples found by their masks",
    ),
)
