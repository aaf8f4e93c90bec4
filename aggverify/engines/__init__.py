"""How local losses become the update the optimizer sees: one file per engine."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from aggverify.deprecated_names import renamed_in
from aggverify.engines.real import RealEngine
from aggverify.engines.spec import (
    CompletedReduction,
    Deviation,
    EngineSession,
    EngineSpec,
    Gradients,
    LocalStep,
    Sizes,
    Usual,
)
from aggverify.engines.train_step import TRAIN_STEP, TrainStepEngine
from aggverify.errors import InputError, unknown
from aggverify.plugins import Table, objects_of

__getattr__ = renamed_in(__name__, {"Arrived": "aggverify.engines:CompletedReduction"})

_ORDER = (
    "aggverify.engines.plain_sum:PLAIN_SUM",
    "aggverify.engines.mean:MEAN",
    "aggverify.engines.mean:ACCUMULATED_MEAN",
    "aggverify.engines.megatron:MEGATRON_SAMPLE",
    "aggverify.engines.megatron:MEGATRON_TOKEN",
    "aggverify.engines.megatron_raw:MEGATRON_TOKEN_RAW",
    "aggverify.engines.megatron_raw:MEGATRON_SAMPLE_RAW",
    "aggverify.engines.megatron_raw:MEGATRON_TWO_OUTPUT",
    "aggverify.engines.skyrl:SKYRL_FSDP",
    "aggverify.engines.skyrl:SKYRL_MEGATRON",
    "aggverify.engines.skyrl:SKYRL_MEGATRON_RAW",
    "aggverify.engines.verl_megatron:VERL_MEGATRON",
    "aggverify.engines.areal:AREAL",
    "aggverify.engines.deepspeed:DEEPSPEED",
    "aggverify.engines.megatron_deviations:THREE_OUTPUT",
    "aggverify.engines.megatron_deviations:THREE_OUTPUT_CP",
    "aggverify.engines.megatron_deviations:PHANTOM_TOKEN",
    "aggverify.engines.megatron_deviations:COUNT_DROPPED",
    "aggverify.engines.skyrl:SKYRL_MEGATRON_02",
    "aggverify.engines.deepspeed:DEEPSPEED_3",
    "aggverify.engines.real:DDP",
    "aggverify.engines.real:FSDP2",
    "aggverify.engines.real:FSDP2_SUM",
    "aggverify.engines.real:FSDP1",
    "aggverify.engines.real:MEGATRON_CORE_SAMPLE",
    "aggverify.engines.real:MEGATRON_CORE_TOKEN",
    "aggverify.engines.real:ACCELERATE",
    "aggverify.engines.real:DEEPSPEED_2",
    "aggverify.engines.real:DEEPSPEED_ZERO_3",
    "aggverify.engines.train_step:TRAIN_STEP",
)
ENGINES: Table[EngineSpec] = Table(
    "engines",
    lambda: EngineSpec,
    {spec.name: spec for spec in objects_of(lambda: EngineSpec, _ORDER)},
)
"""The tool's own, and those that frameworks ship in their own packages."""


def engine(name: str) -> EngineSpec:
    """Return the engine of that name, or the one that ``module:OBJECT`` names; raises InputError.

    Modules are looked for in the working directory too, after everything else.
    """
    if ":" in name:
        return _imported(name)
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    return ENGINES[name]


def formulas() -> list[EngineSpec]:
    """Return the formulas among the engines that can run here.

    They stand for the libraries' own engines; one that deviates is only taken when it is named.
    """
    usual_ones = (e for e in ENGINES.values() if e.available() is None and e.deviates is None)
    return [e for e in usual_ones if not isinstance(e, RealEngine | TrainStepEngine)]


def closing(formula: EngineSpec) -> RealEngine | None:
    """Return the library's own engine under which a run with this formula ends, if any."""
    return next((e for e in reversed(real_ones(formula)) if e.closes), None)


def usual(name: str) -> str:
    """Return the engine whose contract its reducers are written for.

    For a library's own it is that of its formula, for one that deviates the first it names, and for
    every other the engine itself.
    """
    if ":" in name:
        return name
    spec = engine(name)
    if isinstance(spec, RealEngine):
        return usual(spec.formula.name)
    return name if spec.deviates is None else spec.deviates.usual[0]


def real_ones(formula: EngineSpec) -> list[RealEngine]:
    """Return the engines that can run here and that the formula stands for."""
    real = (e for e in ENGINES.values() if isinstance(e, RealEngine))
    return [e for e in real if e.formula == formula and e.available() is None]


def how_to_install(module: str) -> str | None:
    """Return what installs a module that a library's own engine takes, after "pip install"."""
    package = module.partition(".")[0]
    real = (e for e in ENGINES.values() if isinstance(e, RealEngine) and e.package)
    takes = (e for e in real if any(m.partition(".")[0] == package for m in e.preloads))
    return next((e.install for e in takes), None)


def usable(name: str) -> EngineSpec:
    """Return the engine of that name; raises InputError with the reason if it cannot run here."""
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
    "CompletedReduction",
    "Deviation",
    "EngineSession",
    "EngineSpec",
    "Gradients",
    "LocalStep",
    "RealEngine",
    "Sizes",
    "Usual",
    "closing",
    "engine",
    "formulas",
    "how_to_install",
    "real_ones",
    "usable",
    "usual",
]
