"""DeepSpeed ZeRO under Ulysses: its stages average over different groups."""

from __future__ import annotations

from aggverify.engines.emulated import EmulatedEngine, over
from aggverify.engines.mean import ACCUMULATED_MEAN, MEAN
from aggverify.engines.spec import Deviation

DEEPSPEED = EmulatedEngine(
    name="deepspeed",
    title="DeepSpeed ZeRO stages 0 to 2: / K, sum over all D*C ranks, mean over D of them: "
    "update = 1/(K*D) * sum grad f",
    trainers="DeepSpeed ZeRO stages 0 to 2, gradient accumulation included",
    does="averages gradients over micro-batches and data-parallel ranks, as DeepSpeed does up to "
    "stage 2",
    required="K*D * sum(w*l) over its own tokens",
    roundings=2,
    scale=(over("num_microbatches"),),
    before_reduction=(over("dp_size"),),
    guessed=False,
)
DEEPSPEED_3 = EmulatedEngine(
    name="deepspeed-3",
    title="DeepSpeed ZeRO stage 3: / K, mean over all D*C ranks: update = 1/(K*D*C) * sum grad f",
    trainers="DeepSpeed ZeRO stage 3, gradient accumulation included",
    does="averages gradients over micro-batches and all ranks, sequence-parallel ones included, as "
    "DeepSpeed does in stage 3",
    required=ACCUMULATED_MEAN.required,
    roundings=ACCUMULATED_MEAN.roundings,
    scale=ACCUMULATED_MEAN.scale,
    before_reduction=MEAN.before_reduction,
    guessed=False,
    deviates=Deviation(
        ("deepspeed",),
        "averages over sequence-parallel ranks, too",
        "DeepSpeed ZeRO: stages 0 to 2 average over data-parallel ranks, stage 3 over all",
        "multiply by the sequence-parallel size in stage 3, or sum over it",
    ),
)
