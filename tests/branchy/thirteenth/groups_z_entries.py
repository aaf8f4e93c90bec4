"""What the reducers of ``groups_z`` are, and where such code is met."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.thirteenth.base import right

WRONG: tuple[Fresh, ...] = ()

RIGHT: tuple[Fresh, ...] = (
    right(
        "groups_z:rollouts_folded_up_a_tree",
        "sample_mean",
        "agents that branch: a trajectory tree of prompts, rollouts and turns, folded up",
    ),
    right(
        "groups_z:prompts_logged_by_their_first_holder",
        "prompt_mean",
        "logs of a sum and a count per prompt, where a prompt is split and somebody must count it",
    ),
    right(
        "groups_z:prompts_known_to_any_rank",
        "prompt_mean",
        "uids gathered over data-parallel ranks as padded rows, to count those that straddle once",
    ),
    right(
        "groups_z:rollout_tills_of_two_terms",
        "constant",
        "streaming accumulators per trajectory, for Dr.GRPO with a KL penalty",
    ),
    right(
        "groups_z:rollouts_ranked_among_sparse_ids",
        "sequence_sum",
        "64-bit trajectory ids made dense, then a segment sum over samples brought together",
    ),
    right(
        "groups_z:answers_in_a_table_of_prompts",
        "token_sum",
        "view(-1, G) of GRPO trainers, with a ragged table where a prompt's answers are split",
    ),
    right(
        "groups_z:rollout_shares_spread_in_backward",
        "sample_mean",
        "custom function that saves a weight per sequence instead of one per token",
    ),
    right(
        "groups_z:rollout_means_blended_by_tokens",
        "token_mean",
        "sequence means already at hand, weighted by lengths to get the token mean back",
    ),
)
