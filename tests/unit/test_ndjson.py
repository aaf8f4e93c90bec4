"""Events as lines of JSON: written at once, whatever text is in them, and how it ended last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aggverify.codes import CODES
from aggverify.report.delivery import Delivery
from aggverify.report.formats import FORMATS
from aggverify.run.outcome.events import (
    CheckFinished,
    CheckStarted,
    Finished,
    Found,
    Phase,
    Progress,
    Seen,
    SubjectChosen,
    Waiting,
)
from tests import verdicts
from tests.unit.test_reports_hostile import HOSTILE

VERDICT = verdicts.verdict(HOSTILE)
DOCUMENT = verdicts.written(VERDICT)
EVENTS = (
    SubjectChosen(VERDICT.subject, 3),
    CheckStarted("a_check", "its title"),
    Waiting(HOSTILE),
    Progress("a_check", 12, Phase.GRID),
    Seen(VERDICT.reports[0].finding),
    Found(VERDICT.reports[0]),
    CheckFinished(VERDICT.checks[1]),
    Finished(VERDICT),
)
NAMES = [
    "subject", "check_started", "waiting", "progress", "seen",
    "finding", "check_finished", "verdict",
]  # fmt: skip


def test_every_event_is_a_line_at_once(tmp_path: Path) -> None:
    delivery = Delivery.to(tmp_path, ["ndjson"], github=False)
    assert delivery.events is not None
    for n, event in enumerate(EVENTS, 1):
        delivery.events(event)
        assert (tmp_path / "events.ndjson").read_text().count("\n") == n
    assert delivery.deliver(DOCUMENT, "r.py") == []
    told = [json.loads(line) for line in (tmp_path / "events.ndjson").read_text().splitlines()]
    assert [line["event"] for line in told] == [*NAMES, "finished"]
    assert told[2]["what"] == HOSTILE
    assert told[4]["code"] == "AGV201" and told[4]["title"] == CODES["AGV201"].title
    assert told[5]["finding"]["code"] == "AGV201" and told[5]["finding"]["case"]["schema"]
    assert told[-1] == {"event": "finished", "exit": 1, "error": None}


def test_a_stored_document_gives_the_same_lines_but_progress() -> None:
    told = [json.loads(line) for line in FORMATS["ndjson"].render(DOCUMENT).splitlines()]
    names = [line["event"] for line in told]
    assert names == ["subject", *["check_finished"] * 4, "finding", "verdict", "finished"]


def test_what_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("a file where the folder should be")
    delivery = Delivery.to(tmp_path / "there", ["ndjson"], github=False)
    assert delivery.events is not None
    for event in EVENTS:
        delivery.events(event)
    [(what, error)] = delivery.deliver(DOCUMENT, "r.py")
    assert what == "events" and isinstance(error, OSError)


@pytest.mark.parametrize("reports", [0, 2])
def test_the_test_file_is_python_whatever_text_is_in_it(reports: int) -> None:
    text = FORMATS["pytest"].render(verdicts.written(verdicts.verdict(HOSTILE, reports=reports)))
    code = compile(text, "test_findings.py", "exec")
    tests = [name for name in code.co_names if name.startswith("test_agv201_")]
    assert len(tests) == reports
    assert all(line.isprintable() for line in text.split("\n"))
