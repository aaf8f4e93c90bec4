"""Under pytest-xdist: workers share runs, may be replaced, and leave nothing."""

from __future__ import annotations

import subprocess

import pytest

from aggverify.model import load
from tests.choosing import LATER
from tests.testing.conftest import Suite

RIGHT = "test_right = aggverify.conformance('right.py', modes=['token_mean'], max_examples=2)"
WRONG = "test_wrong = aggverify.conformance('wrong.py', checks=['independent_of_micro_batches'])"
COUNTED = """
import pathlib

import pytest

from aggverify.testing.session_state import SessionState

verified = SessionState._verified

def counted(state, cell):
    found = verified(state, cell)
    with pathlib.Path(__file__).with_name("runs").open("a") as file:
        file.write(f"{cell.target} {len(found.checks)}\\n")
    return found

SessionState._verified = counted

def pytest_collection_modifyitems(items):
    items.reverse()  # as a plugin that shuffles may
"""
FORKS = """
import os

import pytest
from _pytest.runner import runtestprotocol

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    if (pid := os.fork()) == 0:
        print(runtestprotocol(item, log=False)[0].longrepr, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    return True
"""
DIES = """
import os, pathlib

@pytest.mark.xdist_group("dies")
def test_dies():
    if not pathlib.Path("died").exists():
        pathlib.Path("died").touch()
        os._exit(1)
"""


def left(made: pytest.Pytester) -> str:
    """Processes that still know of the project."""
    done = subprocess.run(["pgrep", "-f", str(made.path)], capture_output=True, text=True)
    return done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("dist", ["load", LATER("worksteal"), LATER("loadgroup")])
def test_workers_share_one_run_of_each_reducer(suite: Suite, dist: str) -> None:
    made = suite(RIGHT, WRONG)
    made.makeconftest(COUNTED)
    ran = made.runpytest_subprocess(
        *("-n", "2", "--dist", dist, "-p", "no:randomly"),
        *("--aggverify-report=json,md,html", "--junitxml=j.xml"),
    )
    outcomes = ran.parseoutcomes()
    assert outcomes["failed"] == 1 and outcomes["passed"] > 15, ran.stdout.str()
    document = load(made.path / ".aggverify" / "verdict.json")
    judged = outcomes["passed"] + outcomes["skipped"] - 1  # the check of calls has no line
    assert {len(v.checks) for v in document.verdicts} == {1, judged}
    runs = sorted((made.path / "runs").read_text().split("\n"))
    assert runs == ["", f"right.py {judged}", "wrong.py 1"]
    assert "aggverify_case" in (made.path / "j.xml").read_text()
    assert {p.suffix for p in (made.path / ".aggverify").glob("*.*")} == {".json", ".md", ".html"}
    assert left(made) == ""


TIMED = """
import pathlib, time

from aggverify.testing.session_state import SessionState

verified = SessionState._verified

def timed(state, cell):
    began = time.time()
    found = verified(state, cell)
    with pathlib.Path(__file__).with_name("runs").open("a") as file:
        file.write(f"{began} {time.time()}\\n")
    return found

SessionState._verified = timed
"""


@pytest.mark.thorough
def test_a_worker_that_would_wait_for_a_run_begins_another_one(suite: Suite) -> None:
    modes = "['token_mean', 'sample_mean', 'prompt_mean']"
    brief = "profile='quick', max_examples=2, world=2"
    made = suite(f"test_it = aggverify.conformance('right.py', modes={modes}, {brief})")
    made.makeconftest(TIMED)
    ran = made.runpytest_subprocess("-n", "2", "--dist", "load", "-p", "no:randomly")
    assert ran.parseoutcomes()["passed"] > 15, ran.stdout.str()
    runs = sorted(map(str.split, (made.path / "runs").read_text().splitlines()))
    assert len(runs) == 3, "each mode is run once"
    (_, ended), (began, _), _ = runs
    assert float(began) < float(ended), "two at a time"


@pytest.mark.exhaustive
def test_a_worker_that_dies_is_replaced(suite: Suite) -> None:
    made = suite(DIES, RIGHT)
    ran = made.runpytest_subprocess("-n", "2", "--dist", "load")
    outcomes = ran.parseoutcomes()
    assert outcomes["failed"] == 1 and outcomes["passed"] > 15, ran.stdout.str()
    assert "errors" not in outcomes
    ran.stdout.fnmatch_lines(["*worker * crashed while running*test_dies*"])
    assert left(made) == ""


@pytest.mark.thorough
def test_a_test_in_a_forked_process_is_refused(suite: Suite) -> None:
    made = suite("test_it = aggverify.conformance('right.py', checks=['linear_in_the_losses'])")
    made.makeconftest(FORKS)
    ran = made.runpytest_subprocess("-s")
    ran.stdout.fnmatch_lines(["*ranks belong to one process: run its tests without --forked"])
