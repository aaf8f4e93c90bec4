"""What one test reads of a run that all tests of a reducer share, and what several add up to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from aggverify import model
from aggverify.codes.state import State
from aggverify.errors import InputError
from aggverify.run.planning.waiver import accepting
from aggverify.testing.parametrization import cells
from aggverify.testing.result import Result, _of_check
from aggverify.testing.session_state import SessionState
from aggverify.testing.summary import _document, _joined
from tests import verdicts
from tests.verdicts import CP, LINEAR, WEIGHTS

BRANCHES = "holds_where_code_branches"
FOUND = replace(
    verdicts.verdict(),
    checks=(
        verdicts.done(CP, "T3", 7, State.OK),
        verdicts.done(WEIGHTS, "T15", 7, State.OK),
        verdicts.done(BRANCHES, "", 7, State.FAILED),
    ),
)
"""With a finding of a check that passes, found on branches by another."""


def written(of: verdicts.RunVerdict) -> model.Verdict:
    return verdicts.written(of).verdicts[0]


def test_what_is_found_on_branches_fails_the_test_that_shows_it() -> None:
    accepted = FOUND.accepting([])
    assert [check.state for check in accepted.checks] == [State.OK, State.OK, State.FAILED]
    of = {name: _of_check(written(accepted), name) for name in (CP, WEIGHTS, BRANCHES)}
    assert {name: len(own.findings) for name, own in of.items()} == {CP: 0, WEIGHTS: 0, BRANCHES: 1}
    with pytest.raises(pytest.fail.Exception, match="FAIL  AGV201"):
        Result(of[BRANCHES]).must_pass()


def test_what_is_accepted_on_branches_fails_nothing() -> None:
    [report] = FOUND.reports
    waived = FOUND.accepting([accepting(f"AGV201:{report.stored.id}", "known")])
    assert [check.state for check in waived.checks][-1] is State.WAIVED


def test_a_finding_that_no_check_of_the_run_shows_fails_all_tests() -> None:
    alone = replace(FOUND, checks=(verdicts.done(WEIGHTS, "T15", 0, State.NOT_JUDGED),))
    of = _of_check(written(alone), WEIGHTS)
    assert len(of.findings) == 1
    with pytest.raises(pytest.fail.Exception, match="AGV201"):
        Result(of).must_pass()


def test_the_first_test_reports_however_often_it_is_run(tmp_path: Path) -> None:
    state = SessionState(tmp_path, tmp_path, {}, None, [])
    for _ in range(2):
        assert state.is_reported_by("test_a[x]", "no such file")
        assert not state.is_reported_by("test_a[y]", "no such file")


def test_a_run_that_something_else_ends_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = SessionState(tmp_path, tmp_path, {}, None, [])
    [cell] = cells("r.py", ["token_mean"], checks=[LINEAR])

    def ended(*_: object) -> model.Verdict:
        raise KeyboardInterrupt

    monkeypatch.setattr(SessionState, "_verified", ended)
    with pytest.raises(KeyboardInterrupt):
        state.run(cell)
    with pytest.raises(Exception, match="stopped before there was a verdict"):
        state.run(cell)


@pytest.mark.parametrize("key", ["only", "skip", "exit_first"])
def test_what_pytest_chooses_itself_is_refused(key: str) -> None:
    with pytest.raises(InputError, match=f"{key} is of aggverify check"):
        list(cells("r.py", **{key: True if key == "exit_first" else LINEAR}))


def test_one_run_is_shown_as_it_is() -> None:
    two = written(verdicts.verdict(reports=2))
    assert _joined([two]) is two


def test_of_several_runs_nothing_that_matters_is_hidden() -> None:
    whole = written(verdicts.verdict(reports=0))
    open_ = verdicts.done(CP, "T3", 0, State.NOT_JUDGED)
    late = structs.replace(whole, checks=(open_,), incomplete="out-of-time")
    joined = _joined([whole, late])
    assert joined.incomplete == "out-of-time"
    assert {check.name: check.state for check in joined.checks}[CP] is State.NOT_JUDGED
    assert joined.executed == sum(joined.worlds.values()) == 2 * whole.executed
    assert _document([whole, late]).exit == 2
    failing = written(verdicts.verdict(reports=1))
    joined = _joined([late, failing])
    assert {check.name: check.state for check in joined.checks}[CP] is State.FAILED


def test_findings_of_one_cause_have_one_that_is_shown_first() -> None:
    one, two = (written(verdicts.verdict(reports=n)) for n in (1, 2))
    other = structs.replace(two, findings=two.findings[1:])
    joined = _joined([one, other])
    assert [finding.same_cause_as for finding in joined.findings] == [None, one.findings[0].id]
    assert len(joined.causes) == 1
