"""Megatron's own paths, without any factor of a trainer's.

For candidates that are the whole chain up to the scaled loss: they contain the trainer's factors,
which must not be applied a second time.
"""

from __future__ import annotations

from aggverify.engines.emulated import EmulatedEngine, over, times, times_reciprocal
from aggverify.engines.megatron import MEGATRON_SAMPLE

MEGATRON_TOKEN_RAW = EmulatedEngine(
    name="megatron-token-raw",
    title="Megatron per token, nothing of a trainer's before it: DDP sum, / all-reduced "
    "num_tokens: update = sum grad f / num_tokens",
    trainers="Megatron-LM under calculate_per_token_loss: loss_func returns (loss, num_tokens, "
    "logs), every factor its own",
    does="sums gradients and divides by the token counts of all ranks, as Megatron does per token",
    required="(the sum of all ranks' counts) * sum(w*l) over its own tokens: C times the tokens of "
    "the step, where every CP rank returns the full count",
    roundings=2,
    after_reduction=(times_reciprocal("num_tokens"),),
    guessed=False,
)
MEGATRON_SAMPLE_RAW = EmulatedEngine(
    name="megatron-sample-raw",
    title="Megatron with a count of 1, nothing of a trainer's before it: schedule / K, mean over "
    "D*C ranks: update = 1/(K*D*C) * sum grad f",
    trainers="Megatron-LM: loss_func returns (loss, 1, logs), every factor its own",
    does="divides by K and averages gradients over ranks, as Megatron does by itself",
    required="K*D*C * sum(w*l) over its own tokens: a chain's f * K / N * (D*C), N its rollouts",
    roundings=3,
    scale=(over("num_microbatches"),),
    before_reduction=MEGATRON_SAMPLE.before_reduction,
    guessed=False,
)
MEGATRON_TWO_OUTPUT = EmulatedEngine(
    name="megatron-two-output",
    title="Megatron's two-output path: schedule * C / K, mean over D*C ranks: "
    "update = 1/(K*D) * sum grad f",
    trainers="Megatron-LM: loss_func returns (loss, logs), every factor its own",
    does="multiplies by cp_size, divides by K and averages gradients over ranks, as Megatron does "
    "for two outputs",
    required="K*D * sum(w*l) over its own tokens",
    roundings=4,
    scale=(times("cp_size"), over("num_microbatches")),
    before_reduction=MEGATRON_SAMPLE.before_reduction,
    guessed=False,
)
