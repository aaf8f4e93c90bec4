"""AReaL: the engine weighs every micro-batch's loss by its share of the step's tokens."""

from __future__ import annotations

from aggverify.engines.emulated import EmulatedEngine, over, times

_GATHERS = "AReaL gathers log-probabilities over context parallelism before its loss"

# On FSDP the weights are summed over data-parallel ranks, losses multiplied by their number and
# gradients averaged over all; on Megatron they are summed over all ranks. Both amount to this.
AREAL = EmulatedEngine(
    name="areal",
    title="AReaL: a micro-batch's loss * w_i / W * multiplier, w_i its tokens and W those of the "
    "step, gather's backward * C: update = sum of w_i / W * grad f",
    trainers="AReaL: loss_weight_fn counts a micro-batch's tokens",
    does="weighs every micro-batch's loss by its share of the step's tokens, as AReaL does",
    required="(tokens of the step / tokens of the micro-batch) * sum(w*l) over its tokens, which "
    "are gathered over context parallelism",
    roundings=4,
    weighted=True,
    after_reduction=(over("num_tokens"),),
    gathered=(times("cp_size"),),
    not_claimed={"zigzag": _GATHERS, "contiguous": _GATHERS},
    guessed=False,
)
