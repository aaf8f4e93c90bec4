"""``reports/verdicts.py`` says what differs, and nothing where nothing does."""

from __future__ import annotations

import runpy
from typing import Any

import pytest

from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from tests.conftest import ROOT

compared = runpy.run_path(str(ROOT / "reports" / "verdicts.py"))["compared"]


def row(tokens: int = 1, **changed: Any) -> dict[str, Any]:
    case = Case(parse_step(f"1/{'1' * tokens}"), Layout.trivial(1), (1.0,) * tokens)
    found = {
        "check": "a check",
        "code": "AGV101",
        "confirmed": True,
        "factor": None,
        "bugs": ["a bug"],
        "case": case.to_json(),
    }
    found |= {name: value for name, value in changed.items() if name in found}
    verdict = {"mode": "token_mean", "engine": "sum", "identified": False, "not_claimed": []}
    verdict |= {name: value for name, value in changed.items() if name in verdict}
    return {"exit": changed.get("exit", 1), "verdicts": [{**verdict, "findings": [found]}]}


def test_alike() -> None:
    assert compared(row(), row()) == []
    assert compared(row(tokens=2), row(tokens=1)) == [], "a smaller case is no difference"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"exit": 0}, "exit 1 → 0"),
        ({"mode": "token_sum"}, "mode: token_mean → token_sum"),
        ({"engine": "mean"}, "engine: sum → mean"),
        ({"not_claimed": ["poison"]}, "not_claimed: [] → ['poison']"),
        ({"code": "AGV102"}, "findings: "),
        ({"confirmed": False}, "findings: "),
        ({"bugs": []}, "bugs: "),
        ({"factor": "2"}, "factor: "),
        (
            {"tokens": 2},
            "AGV101: ranks, micro-batches, samples, tokens (1, 1, 1, 1) → ",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_differs_is_told(changed: dict[str, Any], told: str) -> None:
    assert any(line.startswith(told) for line in compared(row(), row(**changed)))
