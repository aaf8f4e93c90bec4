"""SkyRL's workers: the loss arrives as a sum, over log-probabilities that are gathered first."""

from __future__ import annotations

from dataclasses import replace

from aggverify.engines.emulated import EmulatedEngine, over, times, times_reciprocal
from aggverify.engines.mean import MEAN
from aggverify.engines.spec import Deviation

_GATHERS = "SkyRL gathers log-probabilities over context parallelism before its loss"
_NEVER_SLICED = {"zigzag": _GATHERS, "contiguous": _GATHERS}

SKYRL_FSDP = EmulatedEngine(
    name="skyrl-fsdp",
    title="SkyRL FSDP worker: trainer f * D, gather's backward * C, mean over D*C ranks: "
    "update = sum grad f, each copy of a gathered loss counted once",
    trainers="SkyRL's FSDP worker since March 2026",
    does="multiplies losses by dp_size and averages gradients over ranks, as SkyRL on FSDP does",
    required="sum(w*l) over its tokens, which are gathered over context parallelism",
    roundings=3,
    scale=(times("dp_size"),),
    before_reduction=MEAN.before_reduction,
    gathered=(times("cp_size"),),
    not_claimed=_NEVER_SLICED,
    guessed=False,  # in every layout that it has, its update is the plain sum's
)
SKYRL_MEGATRON = EmulatedEngine(
    name="skyrl-megatron",
    title="SkyRL Megatron worker: trainer f * K * D, schedule * C / K, mean over D*C ranks: "
    "update = sum grad f, each copy of a gathered loss counted once",
    trainers="SkyRL's Megatron worker since 0.3.0: loss_func returns (loss, logs)",
    does="multiplies losses by K and dp_size, and by C in Megatron, as SkyRL on Megatron does",
    required=SKYRL_FSDP.required,
    roundings=6,
    scale=(times("num_microbatches"), times("dp_size"), times("cp_size"), over("num_microbatches")),
    before_reduction=(times_reciprocal("world_size"),),
    not_claimed=_NEVER_SLICED,
    guessed=False,
)
SKYRL_MEGATRON_RAW = replace(
    SKYRL_MEGATRON,
    name="skyrl-megatron-raw",
    title="SkyRL on Megatron, nothing of its wrapper's before it: schedule * C / K, mean over D*C "
    "ranks: update = 1/(K*D) * sum grad f, each copy of a gathered loss counted once",
    trainers="SkyRL's Megatron wrapper: loss_func returns (loss, logs), every factor its own",
    does="multiplies by cp_size, divides by K and averages gradients over ranks, as Megatron does "
    "for SkyRL's two outputs",
    required="K*D * sum(w*l) over its tokens, which are gathered over context parallelism",
    roundings=4,
    scale=(times("cp_size"), over("num_microbatches")),
)
SKYRL_MEGATRON_02 = replace(
    SKYRL_MEGATRON,
    name="skyrl-megatron-0.2",
    title="SkyRL 0.2.0's Megatron worker: trainer f * K * (D*C), schedule * C / K, mean over D*C "
    "ranks: update = C * sum grad f, each copy of a gathered loss counted once",
    trainers="SkyRL 0.2.0 on Megatron",
    does="multiplies by cp_size twice, as SkyRL 0.2.0 on Megatron does",
    required="sum(w*l) / C over its tokens, which are gathered over context parallelism",
    scale=(
        times("num_microbatches"),
        times("world_size"),
        times("cp_size"),
        over("num_microbatches"),
    ),
    deviates=Deviation(
        ("skyrl-megatron",),
        "multiplies by all dp*cp ranks, and Megatron by cp_size once more",
        "SkyRL #1420 (0.2.0; fixed in #1751)",
        "multiply by the data-parallel size without context parallelism (SkyRL 0.3.0)",
    ),
)
