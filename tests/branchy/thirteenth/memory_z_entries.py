"""Reducers that remember something, and where each is met."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.thirteenth.base import right

WRONG: tuple[Fresh, ...] = ()

RIGHT: tuple[Fresh, ...] = (
    right(
        "memory_z:plans_alive_with_their_graphs",
        "prompt_mean",
        "fused segment sums whose plans are interned weakly, and freed with the last graph",
    ),
    right(
        "memory_z:blocks_recomputed_in_backward",
        "sample_mean",
        "activation checkpointing around chunks of a loss, to keep no widened copy",
    ),
    right(
        "memory_z:amounts_sent_to_a_ledger",
        "sequence_sum",
        "coroutine accumulators with a KL term, autocast turned off around them",
    ),
    right(
        "memory_z:added_up_as_the_environment_says",
        "token_sum",
        "environment switches for reproducible sums, read once a process, with logs",
    ),
    right(
        "memory_z:scales_remembered_for_a_window",
        "token_mean",
        "gradient accumulation that lays out every micro-batch's scale when a window begins",
    ),
    right(
        "memory_z:divided_by_the_last_closure",
        "constant",
        "Dr.GRPO's divisor in a closure that is made again when the batch size changes",
    ),
    right(
        "memory_z:quick_form_watched_at_first",
        "prompt_mean",
        "a vectorised reducer that shadows the old loop for its first calls, and only logs",
    ),
    right(
        "memory_z:masks_saved_as_bits",
        "sample_mean",
        "saved-tensor hooks that pack boolean masks eight to a byte until backward",
    ),
)
