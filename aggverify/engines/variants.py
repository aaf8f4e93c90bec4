"""Libraries' own engines set otherwise than usual, with the update of the formula all the same.

``--engine aggverify.engines.variants:DDP_EACH`` runs one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aggverify.engines.real import DDP, DEEPSPEED_2, FSDP1, FSDP2, RealEngine


def _set(engine: RealEngine, variant: str, how: str, **options: Any) -> RealEngine:
    return replace(
        engine,
        name=f"{__name__}:{variant}",
        library=f"{engine.library}, {how}",
        variant=how,
        options={**engine.options, **options},
        closes=False,
    )


_EACH = "gradients reduced after each micro-batch"
DDP_EACH = _set(DDP, "DDP_EACH", f"{_EACH}: no no_sync", each=True)
FSDP1_EACH = _set(FSDP1, "FSDP1_EACH", f"{_EACH}: no no_sync", each=True)
FSDP1_GRAD_OP = _set(FSDP1, "FSDP1_GRAD_OP", "SHARD_GRAD_OP", strategy="SHARD_GRAD_OP")
FSDP2_EACH = _set(FSDP2, "FSDP2_EACH", f"{_EACH}: set_requires_gradient_sync(True)", each=True)
FSDP2_KEPT = _set(FSDP2, "FSDP2_KEPT", "reshard_after_forward=False", reshard=False)
FSDP2_FREED = _set(FSDP2, "FSDP2_FREED", "reshard_after_forward=True", reshard=True)
DEEPSPEED_1 = _set(DEEPSPEED_2, "DEEPSPEED_1", "at stage 1", stage=1)
DEEPSPEED_0 = _set(DEEPSPEED_2, "DEEPSPEED_0", "at stage 0", stage=0)

VARIANTS = (
    DEEPSPEED_0,
    DEEPSPEED_1,
    DDP_EACH,
    FSDP1_EACH,
    FSDP1_GRAD_OP,
    FSDP2_EACH,
    FSDP2_KEPT,
    FSDP2_FREED,
)


def settings_of(engine: RealEngine) -> list[RealEngine]:
    """Those of the same library, with the same update."""
    same = engine.session_class, engine.formula
    return [v for v in VARIANTS if (v.session_class, v.formula) == same]
