"""Prompt groups, rollouts and their ids: what is known of each."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.ninth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "groups_v:segments_of_prompt_keys",
        "prompt_mean",
        "segment sums over prompt ids; new_tensor puts the ids on the losses' device, and in their "
        "dtype, which holds not every id",
        Witness("1/1; 1/11", dtype="bfloat16", groups=(256, 257)),
        "AGV101 AGV202 AGV203 AGV204 AGV205 AGV301 AGV401",
    ),
    wrong(
        "groups_v:turn_after_turn",
        "sample_mean",
        "multi-turn fan-out: turns lie together as the rollout worker wrote them, until a shuffle "
        "or a balancing by length mixes those of two rollouts",
        Witness("1/1+1/1 1/1", "0,2,1"),
        "AGV101 AGV202 AGV203 AGV204 AGV205 groups-by-position",
    ),
    wrong(
        "groups_v:rollouts_logged_as_they_appear",
        "sequence_sum",
        "a logger that remembers which rollouts this rank has seen, but not other ranks",
        Witness("1/1+1/1", "0 | 1"),
        "AGV511 AGV513 units-counted-per-cell wrong-normaliser",
    ),
    wrong(
        "groups_v:prompt_complete_at_hand",
        "prompt_mean",
        "a collator that keeps prompts whole: complete is when all n rollouts are there, written "
        "before rollouts had several samples",
        Witness("1/1+1/1", "0 1"),
        "AGV202 AGV203 AGV204 AGV206 partial-groups partial-rollouts counted-where-it-stands",
    ),
    wrong(
        "groups_v:copies_that_fill_up_left_out",
        "constant",
        "batches padded to a multiple of the ranks by repeating samples: known again by rollout "
        "and length, which samples cut at the context limit share",
        Witness("1/1+1/1"),
        "AGV101 AGV141 AGV142 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "groups_v:sorted_together_and_put_back",
        "sample_mean",
        "sequence balancing as in verl's reorder: the order is applied again where its inverse "
        "is meant, which is the same for sorted samples and for swapped pairs",
        Witness("1/1; 1/11; 1/111", rollouts=(1, 2, 0)),
        "AGV101 AGV202 AGV203 AGV204 AGV205 sorted-by-id",
    ),
    wrong(
        "groups_v:penalty_by_rollout",
        "token_mean",
        "a KL per rollout kept in a dict, for the log as well, from when a rollout was one sample",
        Witness("1/1+1/1", term=0),
        "AGV207 auxiliary-left-out",
    ),
    wrong(
        "groups_v:looked_up_by_remainder",
        "sample_mean",
        "a table as a ring buffer of a rollout queue: safe while a batch is a run of consecutive "
        "ids, not once stale rollouts are dropped or balancing deals them out",
        Witness("1/1; 1/11", rollouts=(0, 4)),
        "AGV101 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "groups_v:ranks_with_their_share_of_prompts",
        "prompt_mean",
        "a check whether dispatch over ranks kept prompts whole, by numbers of prompts: a rank "
        "with fewer than its share has room for part of one",
        Witness("1/1; 1/1 1/1", "0,1 | 2"),
        "AGV203 AGV204 AGV206 partial-groups counted-where-it-stands",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "groups_v:segments_of_whole_numbers",
        "prompt_mean",
        "segment sums over prompt ids, kept in int64 whatever the losses are",
    ),
    right(
        "groups_v:looked_up_by_probing",
        "sample_mean",
        "a hand-made table in a data loader: ids fall on one slot, and are told apart by their key",
    ),
    right(
        "groups_v:prompts_logged_by_their_first_sample",
        "prompt_mean",
        "a logger that counts a prompt on the one rank that holds its first sample of the step",
    ),
    right(
        "groups_v:sorted_together_and_unsorted",
        "sample_mean",
        "sequence balancing with the order undone by writing through it; ties may fall as they do",
    ),
    right(
        "groups_v:samples_dealt_twice_left_out",
        "constant",
        "a guard against a sampler that deals a sample twice, by its place in the step",
    ),
    right(
        "groups_v:penalty_gathered_by_rollout",
        "token_mean",
        "a kl per rollout, its samples gathered in lists",
    ),
)
