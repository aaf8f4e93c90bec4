"""How local losses become the update the optimizer sees: one file per engine."""

from __future__ import annotations

from aggverify.engines.base import Engine, Sizes
from aggverify.engines.mean import AccumulatedMean, MeanOverRanks
from aggverify.engines.megatron import MegatronPerToken, MegatronSample
from aggverify.engines.plain_sum import PlainSum
from aggverify.engines.skyrl import SkyrlFsdp
from aggverify.errors import unknown

ENGINES: dict[str, Engine] = {
    e.name: e
    for e in (
        PlainSum(),
        MeanOverRanks(),
        AccumulatedMean(),
        MegatronSample(),
        MegatronPerToken(),
        SkyrlFsdp(),
    )
}


def engine(name: str) -> Engine:
    """The engine of that name; raises InputError naming the accepted ones."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    return ENGINES[name]


__all__ = ["ENGINES", "Engine", "Sizes", "engine"]
