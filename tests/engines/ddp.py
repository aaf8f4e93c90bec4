"""torch's own DistributedDataParallel as an engine: ``tests.engines.ddp:DDP``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from aggverify.engines import EngineSession, Sizes
from aggverify.engines.mean import MEAN

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Ddp:
    """Reduces in the backward of the last micro-batch, a model at a time."""

    name: str = "tests.engines.ddp:DDP"
    title: str = MEAN.title
    trainers: str = "torch DDP"
    does: str = MEAN.does
    required: str = MEAN.required
    roundings: int = MEAN.roundings
    takes_counts: bool = False
    merges: bool = False

    def available(self) -> str | None:
        return None

    def value(
        self, losses: Sequence[Fraction], num_tokens: Sequence[int], sizes: Sizes
    ) -> Fraction:
        return MEAN.value(losses, num_tokens, sizes)

    def session(self, device: torch.device) -> EngineSession:
        from tests.engines.ddp_session import DdpSession

        return DdpSession(device)


DDP = Ddp()
