"""A committed list of known findings: what is known, new, expired, fixed, and how it is written."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from aggverify import model
from aggverify.codes.state import Again, Incomplete, Standing, State
from aggverify.errors import InputError
from aggverify.report import baseline, view_model
from aggverify.report.baseline import NO_REASON, SCHEMA, Baseline, Entry
from aggverify.report.document import document, known_findings
from aggverify.run.again import replay
from tests import schemas, verdicts
from tests.conftest import Cli
from tests.regression.test_again import RIGHT, WRONG, project

__all__ = ["project"]
TODAY = date(2026, 6, 1)
RED = verdicts.verdict(reports=1)
MADE = document([RED])
(FINDING,) = MADE.verdicts[0].findings
ENTRY = Entry(FINDING.id, FINDING.identity, "for a reason", "them", "2026-06-01", FINDING.case)
KNOWN = Baseline(SCHEMA, (ENTRY,))


def rerun(outcome: Again, code: str | None = FINDING.code) -> model.Replay:
    (known,) = known_findings(MADE)
    return replay(known, outcome, code if outcome in (Again.FAILS, Again.HAZARD) else None)


def settled(known: Baseline, *reruns: model.Replay, reports: int = 1) -> model.Document:
    """What a run under that baseline comes to."""
    found = verdicts.verdict(reports=reports)
    made = document([found.accepting([entry.waiver(TODAY) for entry in known.known])])
    return baseline.settled(made, tuple(baseline.standing(known, reruns, TODAY)))


def test_what_is_known_fails_nothing_and_what_is_new_does() -> None:
    made = settled(KNOWN, rerun(Again.FAILS))
    assert made.exit == 0 and made.baseline[0].state is Standing.HOLDS
    assert made.verdicts[0].checks[1].state is State.WAIVED
    told = [words for label, words in view_model.inventory(made.verdicts[0]) if label == "waived"]
    what = f"AGV201:{FINDING.id}"
    assert told == [f"{what} waives 1 finding: for a reason (them until 2026-06-01)"]
    # Also where the search has not come upon it: its case says that it is there.
    assert settled(KNOWN, rerun(Again.FAILS), reports=0).exit == 0
    other = replace(ENTRY, identity=replace(ENTRY.identity, factor="dp_size"))
    assert settled(Baseline(SCHEMA, (other,))).exit == 1, "another finding of that code is new"


def test_what_has_expired_is_a_finding_also_where_the_search_misses_it() -> None:
    over = Baseline(SCHEMA, (replace(ENTRY, expires="2026-05-31"),))
    for reports in (1, 0):
        made = settled(over, rerun(Again.FAILS), reports=reports)
        assert made.exit == 1 and made.baseline[0].state is Standing.EXPIRED
    since = f"AGV201:{FINDING.id} since 2026-05-31 (for a reason)"
    assert view_model.headline(made) == f"No longer accepted: {since}"


@pytest.mark.parametrize(
    ("outcome", "code", "state"),
    [
        (Again.PASSES, None, Standing.FIXED),
        (Again.REFUSED, None, Standing.REFUSED),
        (Again.NOT_RUN, None, Standing.NOT_RUN),
        (Again.FAILS, "AGV101", Standing.ANOTHER),
    ],
)
def test_what_its_case_no_longer_shows_is_an_error_that_says_how_to_prune(
    outcome: Again, code: str | None, state: Standing
) -> None:
    made = settled(KNOWN, rerun(outcome, code), reports=0)
    assert made.exit == 2 and [one.state for one in made.stale] == [state]
    headline = view_model.headline(made)
    assert headline.startswith(f"The baseline is out of date: AGV201:{FINDING.id}: {state}")
    assert headline.endswith("take it out, or --baseline-write does")
    left = baseline.merged(KNOWN, made).known
    assert left == ((ENTRY,) if state is Standing.NOT_RUN else ())


def test_writing_merges() -> None:
    about = replace(ENTRY.identity.about, target="another.py:reduce")
    elsewhere = replace(ENTRY, identity=replace(ENTRY.identity, about=about))
    first = baseline.merged(Baseline(SCHEMA, (elsewhere,)), document([verdicts.verdict(reports=2)]))
    assert [e.reason for e in first.known] == ["for a reason", NO_REASON], "alike is one entry"
    made = settled(KNOWN, rerun(Again.FAILS))
    assert baseline.merged(KNOWN, made) == KNOWN, "what is known keeps its reason"


def test_nothing_is_written_of_a_run_that_does_not_say_it_all() -> None:
    (verdict,) = MADE.verdicts
    left = replace(verdict.checks[0], state=State.NOT_JUDGED)
    for less, why in (
        (replace(MADE, incomplete=Incomplete.INTERRUPTED), "the run is not complete: interrupted"),
        (replace(MADE, error="no such file"), "the run is not complete: no such file"),
        (replace(MADE, verdicts=()), "nothing was tested"),
        (replace(MADE, verdicts=(replace(verdict, checks=(left,)),)), "not everything was judged"),
        (replace(MADE, verdicts=(replace(verdict, engine_assumed=True, engine_is_default=False),)),
         "no option names the trainer's engine"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=f"the baseline is not written: {why}"):
            baseline.merged(KNOWN, less)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"reason": " "}, r"known\[0\]: a known finding needs a reason"),
        ({"expires": "soon"}, "expires must be a day, as in 2026-12-31, got 'soon'"),
        ({"id": "aaaaaa"}, f"AGV201:aaaaaa has the case of AGV201:{FINDING.id}"),
        ({"case": {}}, "the stored case.schema must be"),
        ({"owner": None}, r"known\[0\].owner must be text, got None"),
    ],
)
def test_what_is_no_baseline_is_refused(
    changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "known.json"
    baseline.write(KNOWN, path)
    assert baseline.load(path) == KNOWN
    schemas.validator(schemas.BASELINE).validate(json.loads(path.read_text()))
    data = json.loads(path.read_text())
    data["known"][0] |= changed
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match=message):
        baseline.load(path)


def test_where_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    with pytest.raises(InputError, match=r"no such baseline: .*--baseline-write makes it"):
        baseline.load(path)
    assert baseline.load(path, missing=True) == Baseline(SCHEMA, ())
    shipped = (schemas.FOLDER / schemas.BASELINE).read_text()
    assert shipped == baseline.schema(), "python -m aggverify.report.baseline > baseline.json"


@pytest.mark.exhaustive
def test_from_the_first_finding_to_its_fix(cli: Cli, project: Path) -> None:
    def check(*more: str) -> Any:
        return cli("check", "r.py", "--profile", "quick", "--max-examples", "5", "--world", "2",
                   "--max-time", "900", "--baseline", "known.json", *more)  # fmt: skip

    (project / "r.py").write_text(WRONG)
    assert check().code == 2, "there is none"
    first = check("--baseline-write", "--report", "json")
    assert first.code == 0 and "baseline: known.json (" in first.out
    made = json.loads((project / ".aggverify" / "verdict.json").read_text())
    assert made["exit"] == 0 and {b["state"] for b in made["baseline"]} == {"still fails"}
    known = json.loads((project / "known.json").read_text())["known"]
    assert {entry["reason"] for entry in known} == {NO_REASON}
    again = check()
    assert again.code == 0 and "waived finding" in again.out
    (project / "known.json").write_text(
        json.dumps({"schema": 1, "known": [e | {"expires": "2020-01-01"} for e in known]})
    )
    assert check().code == 1
    (project / "r.py").write_text(RIGHT)
    fixed = check()
    assert fixed.code == 2 and "The baseline is out of date: AGV" in fixed.err
    pruned = check("--baseline-write")
    assert pruned.code == 0 and "(0 known findings, 0 new, " in pruned.out
    assert check().code == 0
