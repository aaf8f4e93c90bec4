"""A plain sum whose first session costs more processor time than a case may take."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aggverify.engines.emulated import EmulatedEngine
from aggverify.engines.plain_sum import PLAIN_SUM

if TYPE_CHECKING:
    import torch

    from aggverify.engines.emulated_session import EmulatedSession

SECONDS = 0.6


@dataclass(frozen=True, slots=True)
class SlowStart(EmulatedEngine):
    """Emulated, but for what its sessions need to warm up."""

    def session(self, device: torch.device) -> EmulatedSession:
        from aggverify.engines.emulated_session import EmulatedSession

        class Session(EmulatedSession):
            def warm_up(self) -> None:
                ends = time.process_time() + SECONDS
                while time.process_time() < ends:
                    pass

        return Session(self, device)


SLOW = SlowStart(
    name=f"{__name__}:SLOW",
    title=PLAIN_SUM.title,
    trainers="tests",
    does="sums gradients",
    required=PLAIN_SUM.required,
    roundings=PLAIN_SUM.roundings,
)
