"""Imports and prepares what every rank would, once before ranks are forked from the process."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from types import ModuleType

from aggverify.conventions import CONVENTIONS
from aggverify.conventions.trainer import TrainStepFunction
from aggverify.engines import ENGINES, TRAIN_STEP, engine
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.trainer.assignment import Assignment
from aggverify.trainer.callables import offers
from aggverify.world.interpreter import uncollected

_SESSION = "aggverify.engines.emulated_session"
"""Nearly every run begins with an engine's formula."""


def preload(module: ModuleType, given: str | None) -> None:
    """Import what the engine takes that is ``given``, or that the module names or brings along.

    And read an assignment: what msgspec and Python find out about its types is then kept.
    """
    import_module(_SESSION)
    case = Case(Step((Sample(1, (1,), 0, 0),)), Layout.trivial(1), (0.0,))
    Assignment.from_json(Assignment(case, "", "", "", None, None).to_json())
    name = given or _declared(module)
    steps = [how for how in CONVENTIONS.values() if isinstance(how, TrainStepFunction)]
    if name is None and any(how.recognises(o) for how in steps for o in offers(module)):
        name = TRAIN_STEP.name
    for wanted in () if name is None else engine(name).preloads:
        with suppress(ImportError), uncollected():  # a rank reports it
            import_module(wanted)


def _declared(module: ModuleType) -> str | None:
    """One of the tool's own: a person's is imported where they name it."""
    declared = getattr(module, "AGGVERIFY", None)
    name = declared.get("engine") if isinstance(declared, Mapping) else None
    return name if isinstance(name, str) and name in ENGINES.own else None
