"""Megatron's two paths as slime and miles drive them: per sample, and per token."""

from __future__ import annotations

from aggverify.engines.emulated import EmulatedEngine, over, times, times_reciprocal

MEGATRON_SAMPLE = EmulatedEngine(
    name="megatron-sample",
    title="Megatron sample path: trainer f * K / N * (D*C), schedule / K, mean over D*C ranks: "
    "update = 1/N * sum grad f",
    # N is the trainer's global batch size.
    trainers="slime and miles on Megatron-LM: loss_func returns (loss, 1, logs)",
    does="divides by the step's number of rollouts, as slime on Megatron does",
    required="N * sum(w*l) over its own tokens",
    roundings=5,
    scale=(
        times("num_microbatches"),
        over("num_rollouts"),
        times("world_size"),
        over("num_microbatches"),
    ),
    # Megatron's DDP multiplies its buffer by gradient_scaling_factor, then sums.
    before_reduction=(times_reciprocal("world_size"),),
)
# Every CP rank returns the *full* count of the micro-batch, so the all-reduced count is C times
# the tokens of the step and cancels the trainer's ``* C``.
MEGATRON_TOKEN = EmulatedEngine(
    name="megatron-token",
    title="Megatron per-token path: trainer f * C, DDP sum, / all-reduced num_tokens: "
    "update = sum grad f / tokens",
    trainers="slime and miles on Megatron-LM under calculate_per_token_loss: loss_func returns "
    "(loss, num_tokens, logs)",
    does="divides by the step's number of tokens, as Megatron does per token",
    required="(tokens of the step) * sum(w*l) over its own tokens",
    roundings=3,
    scale=(times("cp_size"),),
    after_reduction=(times_reciprocal("num_tokens"),),
)
