"""Engines of others' libraries, run as they are; what each amounts to is a formula's to say."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from typing import TYPE_CHECKING

from aggverify.engines.emulated import EmulatedEngine
from aggverify.engines.mean import MEAN
from aggverify.engines.spec import EngineSession, Sizes, Usual

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class RealEngine(Usual):
    """A library's own engine. Its update is the formula's as long as the reducer is one that every
    trainer can use: what depends on hooks, on graphs and on who takes part shows here only."""

    name: str
    library: str
    """In words, for "run under ..."."""
    trainers: str
    formula: EmulatedEngine
    session_class: str
    """``module:Class``, of a session that is made from the rank's device."""
    since: tuple[int, int] = (2, 6)
    """The first torch that has it, on processors."""
    preloads: tuple[str, ...] = ("torch._dynamo", "torch.distributed.fsdp")
    closes: bool = True
    """Whether a run under its formula ends with a few cases under it: the last such one."""
    merges: bool = False

    @property
    def title(self) -> str:
        return f"{self.library} itself: {self.formula.title}"

    @property
    def does(self) -> str:
        return self.formula.does

    @property
    def required(self) -> str:
        return self.formula.required

    @property
    def roundings(self) -> int:
        return self.formula.roundings

    @property
    def guessed(self) -> bool:
        return False  # its formula is

    @property
    def takes_counts(self) -> bool:
        return self.formula.takes_counts

    def available(self) -> str | None:
        has = version("torch")
        if tuple(int(part) for part in has.split(".")[:2]) >= self.since:
            return None
        return f"it needs torch {'.'.join(map(str, self.since))} or newer, and this is {has}"

    def value(
        self, losses: Sequence[Fraction], num_tokens: Sequence[int], sizes: Sizes
    ) -> Fraction:
        return self.formula.value(losses, num_tokens, sizes)

    def session(self, device: torch.device) -> EngineSession:
        module, _, name = self.session_class.partition(":")
        made: EngineSession = getattr(importlib.import_module(module), name)(device)
        return made


DDP = RealEngine(
    name="ddp",
    library="torch DistributedDataParallel",
    trainers="torch DDP, no_sync on all but a step's last micro-batch",
    formula=MEAN,
    session_class="aggverify.engines.ddp_session:DdpSession",
)
FSDP2 = RealEngine(
    name="fsdp2",
    library="torch FSDP2 (fully_shard)",
    trainers="torch FSDP2, gradients reduced after a step's last micro-batch",
    formula=MEAN,
    session_class="aggverify.engines.fsdp2_session:Fsdp2Session",
    since=(2, 7),  # pytorch #145935
)
