"""What is known when a command is stopped, by Ctrl-C or by its time, is told and marked."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aggverify.errors import NotJudged
from aggverify.execution.deadline import Deadline, OutOfTime
from aggverify.run import session
from aggverify.run.planning import resolution
from aggverify.run.search import entry_runner, runner
from aggverify.run.search.pipeline import Pipeline
from aggverify.run.search.runner import CheckRun
from tests.conftest import EXAMPLES, Cli, Ran

RIGHT = EXAMPLES / "native" / "accumulated_mean" / "token_mean.py"
WRONG = EXAMPLES / "broken" / "micro_batch_token_mean.py"
CHECK = "independent_of_micro_batches"
LITTLE = ("--profile", "quick", "--world", "1", "--max-examples", "1")
EVERY = ("--report", "json,junit,md,html,text", "--report-dir", "o", "--github")


def raising(error: BaseException, times: float = 0, first: Any = None) -> Callable[..., Any]:
    """Raises it from that call on; before, it is ``first``."""
    calls = []

    def function(*arguments: Any, **named: Any) -> Any:
        calls.append(None)
        if len(calls) > times:
            raise error
        return first(*arguments, **named)

    return function


def documents(ran: Ran, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The verdict document, and every other way in which it is told."""
    out = folder / "o"
    files = ("junit.xml", "summary.md", "report.html", "report.txt")
    texts = [(out / name).read_text() for name in files]
    return json.loads((out / "verdict.json").read_text()), [*texts, ran.out]


STOPS = [(KeyboardInterrupt(), 130, "interrupted"), (OutOfTime(), 2, "out of time")]


@pytest.mark.parametrize(("stop", "code", "word"), STOPS, ids=["ctrl-c", "time"])
def test_what_was_judged_by_then_is_told_in_every_report(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop: BaseException,
    code: int,
    word: str,
) -> None:
    monkeypatch.setattr(CheckRun, "submit", raising(stop, 30, CheckRun.submit))
    ran = cli("check", RIGHT, *LITTLE, *EVERY)
    assert ran.code == code, ran
    made, told = documents(ran, tmp_path)
    assert (made["exit"], made["incomplete"], made["error"]) == (code, word, None)
    [verdict] = made["verdicts"]
    assert verdict["incomplete"] == word
    states = [check["state"] for check in verdict["checks"]]
    assert "ok" in states and "not judged" in states
    for text in told:
        assert f"Incomplete ({word}): no finding so far" in text, text
        assert "Conforms" not in text and "conforms:" not in text
    assert "Traceback" not in ran.err


def test_a_finding_that_was_not_looked_into_yet_is_told(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_runner, "triage_finding", raising(KeyboardInterrupt()))
    ran = cli("check", WRONG, "--profile", "quick", "--max-examples", "1", *EVERY)
    assert ran.code == 130, ran
    made, told = documents(ran, tmp_path)
    [found] = made["verdicts"][0]["findings"]
    assert (found["code"], found["confirmed"]) == ("AGV202", None)
    for text in told:
        assert "AGV202" in text and "interrupted" in text
    assert "seen once, and not run again: the command was stopped first" in ran.out
    assert len(list((tmp_path / "o" / "cases").iterdir())) == 1


@pytest.mark.exhaustive
def test_a_finding_is_confirmed_though_there_was_no_time_to_make_it_small(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "shrink", raising(OutOfTime()))
    ran = cli("check", WRONG, "--profile", "quick", "--max-examples", "1", *EVERY)
    made, _ = documents(ran, tmp_path)
    assert ran.code == 1, ran
    assert all(f["confirmed"] for f in made["verdicts"][0]["findings"])


@pytest.mark.parametrize(("stop", "code", "word"), STOPS, ids=["ctrl-c", "time"])
def test_stopped_before_anything_was_judged(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop: BaseException,
    code: int,
    word: str,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(session, "prepared", raising(stop))
        ran = cli("check", RIGHT, *LITTLE, *EVERY)
        made, _ = documents(ran, tmp_path)
        assert (ran.code, made["exit"], made["incomplete"]) == (code, code, word), ran
        [verdict] = made["verdicts"]
        assert not any(check["cases"] for check in verdict["checks"])
    monkeypatch.setattr(resolution, "completed", raising(stop))
    ran = cli("check", RIGHT, *LITTLE, *EVERY)
    made, _ = documents(ran, tmp_path)
    assert (ran.code, made["exit"], made["incomplete"]) == (code, code, word), ran
    assert made["verdicts"] == []
    assert "before anything could be judged" in made["error"]


def test_max_time_is_of_the_whole_command(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousandth of a second is over before the candidate is imported."""
    ran = cli("check", RIGHT, "--max-time", "0.001", "--report", "json", "--report-dir", "o")
    assert ran.code == 2, ran
    assert "--max-time was over before anything could be judged" in ran.err
    made = json.loads((tmp_path / "o" / "verdict.json").read_text())
    assert made["incomplete"] == "out of time"


def test_what_is_left_is_kept_for_confirming_and_for_reports() -> None:
    for seconds, kept in ((10.0, 1.0), (600.0, 2.0)):
        deadline = Deadline(seconds, began=100.0)
        assert deadline.runs_until == 100.0 + seconds - kept
        assert deadline.looks_until == 100.0 + seconds - 2 * kept
    never = Deadline()
    assert never.left == math.inf
    never.look()
    past = Deadline(1.0, began=-1e9)
    assert past.left == 0.0
    for way in (past.look, past.check):
        with pytest.raises(OutOfTime):
            way()


@pytest.mark.thorough
def test_what_a_first_look_has_confirmed_stands_where_its_check_comes_to_no_result(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckRun, "run", raising(NotJudged("ranks are ended for lack of memory")))
    ran = cli("check", WRONG, *LITTLE)
    assert (ran.code, "AGV202" in ran.flat) == (1, True), ran.out


@pytest.mark.thorough
def test_what_was_seen_before_time_ended_among_drawn_cases_is_a_finding(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing but the last batch shows it, and that is as far as the run comes."""
    monkeypatch.setattr(session, "first_failure", lambda *arguments: None)
    monkeypatch.setattr(runner, "first_cases", lambda *arguments: [])
    monkeypatch.setattr(Pipeline, "rest", raising(OutOfTime(), 0))
    ran = cli("check", WRONG, "--profile", "quick", "--world", "1", "--only", CHECK)
    assert (ran.code, "AGV202" in ran.flat) == (1, True), ran.out
