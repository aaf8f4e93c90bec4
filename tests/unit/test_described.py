"""What a file says of itself comes from a process that has run it."""

from __future__ import annotations

import copy
import types
from typing import Any

import pytest

from aggverify.errors import InputError
from aggverify.trainer import loading

MODULE = types.ModuleType("r")
exec("AGGVERIFY = {}\ndef reduce(losses, batch, *, e=1e-6): return losses.sum()", MODULE.__dict__)


@pytest.fixture
def description(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    named = {"torch": "2.9", "processor": "AVX2", "threads": "1"}
    monkeypatch.setattr(loading, "environment", lambda: named)
    made = loading.described(MODULE)
    loading.check_described(made)
    assert [offer["name"] for offer in made["offers"]] == ["reduce"]
    return copy.deepcopy(made)


NAMES = ("offers", "constants", "dtypes", "surroundings", "functions", "declared", "environment")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [3, [3], {"a": 3}, [["a", "b"]], {"a": ["b"], "c": [None]}])
def test_anything_else_is_refused(description: dict[str, Any], name: str, value: Any) -> None:
    if name == "declared" and isinstance(value, dict):
        return  # read by the settings' own reader
    description[name] = value
    with pytest.raises(InputError, match="its own description cannot be read"):
        loading.check_described(description)
    del description[name]
    with pytest.raises(InputError, match="its own description cannot be read"):
        loading.check_described(description)
