"""AReaL: the engine weighs every micro-batch's loss by its share of the step's tokens."""

from __future__ import annotations

from aggverify.engines.emulated import EmulatedEngine, over

AREAL = EmulatedEngine(
    name="areal",
    title="AReaL: a micro-batch's loss times its own tokens, over all: "
    "update = sum of n * grad f / sum of n",
    trainers="AReaL: loss_weight_fn counts a micro-batch's tokens",
    does="weighs every micro-batch's loss by its share of the step's tokens, as AReaL does",
    required="(tokens of the step / tokens of the micro-batch) * sum(w*l) over its own tokens",
    roundings=3,
    weighted=True,
    after_reduction=(over("num_tokens"),),
    guessed=False,
)
