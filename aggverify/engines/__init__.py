"""How local losses become the update the optimizer sees: one file per engine."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from aggverify.engines.areal import AREAL
from aggverify.engines.mean import ACCUMULATED_MEAN, MEAN
from aggverify.engines.megatron import MEGATRON_SAMPLE, MEGATRON_TOKEN
from aggverify.engines.plain_sum import PLAIN_SUM
from aggverify.engines.real import DDP, FSDP2, RealEngine
from aggverify.engines.skyrl import SKYRL_FSDP
from aggverify.engines.spec import (
    Arrived,
    EngineSession,
    EngineSpec,
    Gradients,
    LocalStep,
    Sizes,
)
from aggverify.engines.train_step import TRAIN_STEP, TrainStepEngine
from aggverify.engines.verl_megatron import VERL_MEGATRON
from aggverify.errors import InputError, unknown
from aggverify.plugins import Table

_OWN = (
    *(PLAIN_SUM, MEAN, ACCUMULATED_MEAN, MEGATRON_SAMPLE, MEGATRON_TOKEN),
    *(SKYRL_FSDP, VERL_MEGATRON, AREAL),
)
_REAL = (DDP, FSDP2)
ENGINES: Table[EngineSpec] = Table(
    "engines",
    lambda: EngineSpec,
    {spec.name: spec for spec in (*_OWN, *_REAL, TRAIN_STEP)},
)
"""The tool's own, and those that frameworks ship in their own packages."""


def engine(name: str) -> EngineSpec:
    """The engine of that name, or the one that ``module:OBJECT`` names; raises InputError.

    Modules are looked for in the working directory too, after everything else.
    """
    if ":" in name:
        return _imported(name)
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    return ENGINES[name]


def formulas() -> list[EngineSpec]:
    """The engines that can run here, each update once: what is a formula's stands for others."""
    usable_ones = (e for e in ENGINES.values() if e.available() is None)
    return [e for e in usable_ones if not isinstance(e, RealEngine | TrainStepEngine)]


def real_ones(formula: EngineSpec) -> list[RealEngine]:
    """The engines that can run here and that the formula stands for."""
    real = (e for e in ENGINES.values() if isinstance(e, RealEngine))
    return [e for e in real if e.formula == formula and e.available() is None]


def usable(name: str) -> EngineSpec:
    """The engine of that name; raises InputError with the reason if it cannot run here."""
    spec = engine(name)
    if (reason := spec.available()) is not None:
        raise InputError(f"engine {name} cannot run here: {reason}")
    return spec


def _imported(name: str) -> EngineSpec:
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a person's own code
        text = f"{type(error).__name__}: {error}"
        raise InputError(f"engine {name!r} cannot be imported: {text}") from error
    if not isinstance(found, EngineSpec):
        raise InputError(f"engine {name!r} is no EngineSpec (aggverify.engines): {found!r:.200}")
    if found.name != name:
        raise InputError(f"engine {name!r} is named {found.name!r}: ranks could not find it")
    return found


__all__ = [
    "ENGINES",
    "TRAIN_STEP",
    "Arrived",
    "EngineSession",
    "EngineSpec",
    "Gradients",
    "LocalStep",
    "RealEngine",
    "Sizes",
    "engine",
    "formulas",
    "real_ones",
    "usable",
]
