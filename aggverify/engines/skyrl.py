"""SkyRL's FSDP worker: the loss arrives as a sum, the trainer multiplies by the DP size."""

from __future__ import annotations

from aggverify.engines.emulated import EmulatedEngine, times
from aggverify.engines.mean import MEAN

SKYRL_FSDP = EmulatedEngine(
    name="skyrl-fsdp",
    title="SkyRL FSDP worker: trainer f * D, mean over D*C ranks: update = 1/C * sum grad f",
    trainers="SkyRL's FSDP worker since March 2026",
    does="multiplies losses by dp_size and averages gradients over ranks, as SkyRL on FSDP does",
    required="C * sum(w*l) over its own tokens; SkyRL has no sharded losses, so its C is 1",
    roundings=2,
    scale=(times("dp_size"),),
    before_reduction=MEAN.before_reduction,
)
