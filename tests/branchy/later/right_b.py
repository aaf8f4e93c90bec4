"""The right ones of these themes: as many branches, and right on all of them."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.later.base import right

RIGHT_B: tuple[Fresh, ...] = (
    right("prompts_b:names_in_words", "prompt_mean", "tokens by unique names"),
    right("prompts_b:prompts_by_their_fan_outs", "prompt_mean", "one division for equal fan-out"),
    right("prompts_b:found_by_bisection_in_order", "prompt_mean", "bisection in sorted names"),
    right("prompts_b:incomplete_prompts_by_themselves", "prompt_mean", "short groups apart"),
    right("prompts_b:turns_that_are_all_here", "sample_mean", "rollouts that are all here"),
    right("tallies_b:tokens_of_an_even_shard_and_the_rest", "token_mean", "divmod by shards"),
    right("tallies_b:rollouts_less_what_fills_up", "constant", "a sampler that fills up"),
    right("tallies_b:lengths_of_the_step_with_their_number", "sequence_sum", "a histogram"),
    right("tallies_b:lengths_above_the_cap_in_parts", "token_sum", "weights in two parts"),
    right("memory_b:tokens_put_into_the_environment", "token_mean", "a variable set each call"),
    right("memory_b:set_up_by_every_window", "token_mean", "a flag that is set each call"),
    right("memory_b:weights_kept_by_counts", "sample_mean", "a cache with its whole key"),
    right("memory_b:noted_once_of_the_empty", "sequence_sum", "a warning once, and no more"),
    right("branches_b:equal_counts_in_the_step", "sample_mean", "equal counts of the step"),
    right("branches_b:paired_and_divided_apart", "sample_mean", "pairs, each its own count"),
    right("branches_b:logged_whatever_is_here", "token_sum", "a log of empty micro-batches"),
    right("branches_b:entropy_over_the_step", "token_mean", "an entropy or KL term by shares"),
)
