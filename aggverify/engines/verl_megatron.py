"""verl on Megatron: what ``agg_loss`` gives is multiplied by K, by C in Megatron, divided by K."""

from __future__ import annotations

from aggverify.engines.emulated import EmulatedEngine, over, times, times_reciprocal

VERL_MEGATRON = EmulatedEngine(
    name="verl-megatron",
    title="verl on Megatron: trainer f * K, schedule * C / K, mean over D*C ranks: "
    "update = 1/D * sum grad f",
    trainers="verl on Megatron-LM: loss_func returns (loss, logs)",
    does="averages gradients over data-parallel ranks, as verl on Megatron does",
    required="D * sum(w*l) over its own tokens",
    roundings=5,
    scale=(times("num_microbatches"), times("cp_size"), over("num_microbatches")),
    before_reduction=(times_reciprocal("world_size"),),
    guessed=False,
)
