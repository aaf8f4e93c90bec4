"""Engines that average over ranks, as torch DDP and FSDP do."""

from __future__ import annotations

from aggverify.engines.emulated import EmulatedEngine, over

MEAN = EmulatedEngine(
    name="mean",
    title="mean over all dp*cp ranks, micro-batches added: update = 1/(D*C) * sum grad f",
    trainers="torch DDP and FSDP, as in verl, TRL and Hugging Face's Trainer",
    does="averages gradients over ranks, as DDP and FSDP do",
    required="D*C * sum(w*l) over its own tokens",
    roundings=1,
    # DDP divides each rank's bucket first and sums afterwards.
    before_reduction=(over("world_size"),),
)
ACCUMULATED_MEAN = EmulatedEngine(
    name="accumulated-mean",
    title="mean over micro-batches and ranks: update = 1/(D*C*K) * sum grad f",
    trainers="accelerate, oat, OpenRLHF, and SkyRL before March 2026: each micro-batch's loss is "
    "divided by the accumulation steps",
    does="averages gradients over micro-batches and ranks",
    required="K*D*C * sum(w*l) over its own tokens",
    roundings=2,
    scale=(over("num_microbatches"),),
    before_reduction=MEAN.before_reduction,
)
