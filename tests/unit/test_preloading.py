"""What every rank would import or find out is there before ranks are forked."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from aggverify.steps import case
from aggverify.trainer.preloading import preload

SESSION = "aggverify.engines.emulated_session"


def test_the_session_of_a_formula_and_how_a_case_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, SESSION, raising=False)
    case._known_step.cache_clear()
    preload(ModuleType("reducer"), "sum")
    assert SESSION in sys.modules
    assert case._known_step.cache_info().currsize == 1
