"""SARIF: valid by its own schema whatever is found, one alert a cause, on the reducer's line."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sarif_kit.validate import validation_errors

from aggverify.errors import InputError
from aggverify.model import Document
from aggverify.report.document import stopped
from aggverify.report.formats import FORMATS
from tests import verdicts
from tests.unit.test_reports_hostile import HOSTILE

RED = verdicts.written(verdicts.verdict(reports=2))


def run_of(document: Document) -> dict[str, Any]:
    log = json.loads(FORMATS["sarif"].render(document))
    assert validation_errors(log) == []
    [run] = log["runs"]
    assert isinstance(run, dict)
    return run


def test_a_cause_is_a_result_on_the_reducers_line(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("import torch\n\ndef reduce(losses, batch):\n    pass\n")
    with contextlib.chdir(tmp_path):
        run = run_of(RED)
    first, second = run["results"]
    [place] = first["locations"]
    where = place["physicalLocation"]
    assert where["artifactLocation"] == {"uri": "r.py", "uriBaseId": "%SRCROOT%"}
    assert where["region"] == {"startLine": 3}
    assert first["level"] == "error"
    assert "makes gradients" in first["message"]["text"]
    rule = run["tool"]["driver"]["rules"][first["ruleIndex"]]
    assert rule["id"] == first["ruleId"] == "AGV201"
    assert "aggverify explain AGV201" in rule["help"]["text"]
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 1}]
    assert second["properties"]["case"] != first["properties"]["case"]


def test_what_is_waived_is_suppressed_and_a_hazard_is_a_note() -> None:
    [verdict] = RED.verdicts
    finding = replace(verdict.findings[0], waived="known")
    hazard = replace(verdict.findings[1], effect="hazard")
    waived, note = run_of(replace(RED, verdicts=(replace(verdict, findings=(finding, hazard)),)))[
        "results"
    ]
    assert waived["suppressions"] == [{"kind": "external", "justification": "known"}]
    assert (waived["level"], note["level"]) == ("note", "note")


@pytest.mark.parametrize(
    "document",
    [
        verdicts.written(verdicts.verdict(HOSTILE)),
        verdicts.written(verdicts.verdict(reports=0)),
        stopped((), InputError(f"no reducer {HOSTILE}")),
        stopped((), KeyboardInterrupt()),
    ],
    ids=["hostile", "green", "error", "interrupted"],
)
def test_it_is_valid_whatever_is_found(document: Document) -> None:
    run = run_of(document)
    successful = run["invocations"][0]["executionSuccessful"]
    assert successful == (document.exit < 2)
    assert successful or "toolExecutionNotifications" in run["invocations"][0]
