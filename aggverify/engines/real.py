"""Engines of others' libraries, run as they are; the formula of each states what it amounts to."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aggverify.engines.deepspeed import DEEPSPEED, DEEPSPEED_3
from aggverify.engines.emulated import EmulatedEngine
from aggverify.engines.mean import ACCUMULATED_MEAN, MEAN
from aggverify.engines.megatron import MEGATRON_SAMPLE, MEGATRON_TOKEN
from aggverify.engines.plain_sum import PLAIN_SUM
from aggverify.engines.spec import Deviation, EngineSession, Sizes, Usual

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class RealEngine(Usual):
    """A library's own engine.

    Its update is the formula's as long as the reducer is one that every trainer can use: what
    depends on hooks, on graphs and on who takes part shows here only.
    """

    name: str
    library: str
    """The library in words, as in "run under ..."."""
    trainers: str
    formula: EmulatedEngine
    session_class: str
    """``module:Class``, of a session that is made from the rank's device."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What else it is made from."""
    variant: str = ""
    """How it is set otherwise than usual."""
    package: str = ""
    """What has to be installed, in addition to torch."""
    install: str = ""
    """How, after "pip install"."""
    since: tuple[int, int] = (2, 6)
    """The first torch that has it, on processors."""
    file: str = ""
    """A file in torch's folder; a torch without it no longer has the engine."""
    preloads: tuple[str, ...] = ("torch._dynamo", "torch.distributed.fsdp")
    computes_in: str = "float64"
    """The lowest precision on a gradient's way through it, whatever the gradient's own is."""
    closes: bool = True
    """Whether a run under its formula may end with a few cases under it: the last that may does."""
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
        return False  # its formula is tried instead

    @property
    def takes_counts(self) -> bool:
        return self.formula.takes_counts

    @property
    def deviates(self) -> Deviation | None:
        return self.formula.deviates

    def available(self) -> str | None:
        if self.package and _installed(self.package) is None:
            return f"it needs {self.package}, which is not installed: pip install {self.install}"
        has = _installed("torch")
        assert has is not None
        if tuple(int(part) for part in has.split(".")[:2]) >= self.since:
            gone = self.file and not (_torch() / self.file).is_file()
            return f"torch {has} no longer has it: pip install torch==2.13" if gone else None
        return f"it needs torch {'.'.join(map(str, self.since))} or newer, and this is {has}"

    def value(
        self, losses: Sequence[Fraction], num_tokens: Sequence[int], sizes: Sizes
    ) -> Fraction:
        return self.formula.value(losses, num_tokens, sizes)

    def session(self, device: torch.device) -> EngineSession:
        module, _, name = self.session_class.partition(":")
        made = getattr(importlib.import_module(module), name)(device, **self.options)
        session: EngineSession = made
        return session


def _installed(package: str) -> str | None:
    """Return its version, or None; kept, as its metadata is parsed anew each time it is asked."""
    return _installed_in(tuple(sys.path), package)


@cache
def _installed_in(path: tuple[str, ...], package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _torch() -> Path:
    """Return torch's folder, without importing torch."""
    found = importlib.util.find_spec("torch")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


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
FSDP2_SUM = replace(
    FSDP2,
    name="fsdp2-sum",
    library="torch FSDP2 (set_gradient_divide_factor(1))",
    trainers="torch FSDP2 with set_gradient_divide_factor(1), as torchtitan trains",
    formula=PLAIN_SUM,
    options={"divide_factor": 1.0},
    since=(2, 9),  # pytorch #155915
    closes=False,
)
FSDP1 = replace(
    FSDP2,
    name="fsdp1",
    library="torch FSDP1 (FullyShardedDataParallel)",
    trainers="torch FSDP1, no_sync on all but a step's last micro-batch",
    session_class="aggverify.engines.fsdp1_session:Fsdp1Session",
    since=(2, 6),
    file="distributed/fsdp/fully_sharded_data_parallel.py",
    closes=False,
)
MEGATRON_CORE_TOKEN = RealEngine(
    name="megatron-core-token",
    library="megatron-core (its schedule, DDP and finalize_model_grads)",
    trainers="slime and miles on Megatron-LM per token, megatron-core from PyPI on processors",
    formula=MEGATRON_TOKEN,
    session_class="aggverify.engines.megatron_core_session:MegatronCoreSession",
    options={"per_token": True},
    package="megatron-core",
    install="--no-deps megatron-core==0.16.1 packaging (0.17 and newer: Python 3.12)",
    preloads=("megatron.core.distributed", "megatron.core.pipeline_parallel.schedules"),
    computes_in="float32",  # the reciprocal of an integer tensor
    closes=False,
)
MEGATRON_CORE_SAMPLE = replace(
    MEGATRON_CORE_TOKEN,
    computes_in="float64",
    name="megatron-core-sample",
    trainers="slime and miles on Megatron-LM per sample, megatron-core from PyPI on processors",
    formula=MEGATRON_SAMPLE,
    options={"per_token": False},
)
ACCELERATE = RealEngine(
    name="accelerate",
    library="accelerate (Accelerator.accumulate and backward, over DDP)",
    trainers="HF-Trainer-style loops: each micro-batch's loss / K in Accelerator.backward",
    formula=ACCUMULATED_MEAN,
    session_class="aggverify.engines.accelerate_session:AccelerateSession",
    package="accelerate",
    install="accelerate",
    preloads=("torch._dynamo", "torch.distributed.fsdp", "accelerate"),
    closes=False,
)
DEEPSPEED_2 = RealEngine(
    name="deepspeed-2",
    library="DeepSpeed ZeRO stage 2",
    trainers="DeepSpeed ZeRO stage 2 with Ulysses' groups, on processors with gloo",
    formula=DEEPSPEED,
    session_class="aggverify.engines.deepspeed_session:DeepSpeedSession",
    options={"stage": 2},
    package="deepspeed",
    install="deepspeed",
    preloads=("torch._dynamo",),  # deepspeed looks for GPUs, which what forks must not
    computes_in="float32",  # in which gradients travel under sequence parallelism
    closes=False,
)
DEEPSPEED_ZERO_3 = replace(
    DEEPSPEED_2,
    name="deepspeed-zero-3",
    library="DeepSpeed ZeRO stage 3",
    trainers="DeepSpeed ZeRO stage 3 with Ulysses' groups, on processors with gloo",
    formula=DEEPSPEED_3,
    options={"stage": 3},
)
