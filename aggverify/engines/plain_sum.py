"""Plain sum over ranks and micro-batches: the Tinker contract."""

from __future__ import annotations

from aggverify.engines.emulated import EmulatedEngine

PLAIN_SUM = EmulatedEngine(
    name="sum",
    title="plain sum over ranks and micro-batches: update = sum grad f",
    trainers="Tinker, prime-rl, and trainers whose reducer does all scaling",
    does="sums gradients over ranks",
    required="sum(w*l) over its own tokens",
    roundings=0,
)
