"""The right ones of layouts, collectives and arithmetic."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.later.base import right

RIGHT_A: tuple[Fresh, ...] = (
    right("layouts_a:rows_in_parts_of_the_capacity", "sample_mean", "rows above a capacity"),
    right("layouts_a:unfolded_into_tiles_and_a_tail", "sequence_sum", "tiles, and what is left"),
    right("layouts_a:averaged_where_tokens_are_equal", "token_mean", "equal parts of the tokens"),
    right("layouts_a:rollouts_a_micro_batch_and_the_rest", "constant", "divmod by micro-batches"),
    right("layouts_a:two_parts_of_a_shard", "token_sum", "a shard's halves, the second longer"),
    right("layouts_a:whole_chunks_are_added", "token_mean", "whole chunks, one division"),
    right("layouts_a:counts_sent_as_integers", "token_mean", "counts in a bucket of their own"),
    right("layouts_a:segments_in_words", "sample_mean", "segment ids in 32 bits"),
    right("arithmetic_a:gradient_is_scaled", "token_mean", "a gradient made in forward"),
    right("arithmetic_a:added_up_in_single", "token_sum", "16 bits added up in 32"),
    right("layouts_a:prompts_of_the_window", "prompt_mean", "prompts over all micro-batches"),
)
