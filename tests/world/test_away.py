"""A parent that was stopped, or busy elsewhere, for minutes; processes it waits for that do not
answer."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from aggverify.world import Fault, Options, Pool, PoolError, Replies, Template
from aggverify.world.clock import AWAY, Clock
from tests.waiting import wait_until
from tests.world.conftest import HERE, job, opened


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """The clock goes forward by so much, as it does while a process is stopped."""
    monotonic = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + seconds)


def test_what_was_not_asked_for_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    at = 10.0
    monkeypatch.setattr(time, "monotonic", lambda: at)
    clock = Clock()
    at += AWAY / 2
    assert (clock.now(), clock.away) == (10.0 + AWAY / 2, False)
    at += 600.0
    assert (clock.now(), clock.away) == (10.0 + AWAY / 2, True)
    at += AWAY / 2
    assert (clock.now(), clock.away) == (10.0 + AWAY, True)


def test_ranks_are_not_blocked_because_nobody_read_their_answers(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = opened(pool, "Play")
    template.run([job("nothing", 2)])
    pending = template.submit([job("compute", 2, seconds=0.05)])
    later(monkeypatch, 600.0)
    [outcome] = pending.wait()
    assert isinstance(outcome, Replies), outcome
    template.close()


def test_ranks_that_are_being_started_meanwhile_are_not_late(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = opened(pool, "Play")
    pending = template.submit([job("nothing", 2)])
    later(monkeypatch, 600.0)
    [outcome] = pending.wait()
    assert isinstance(outcome, Replies), outcome
    template.close()


def test_what_is_blocked_is_found_after_that(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    template = opened(pool, "Play")
    pending = template.submit([job("sleep", 1, seconds=3600)])
    later(monkeypatch, 600.0)
    [outcome] = pending.wait()
    assert isinstance(outcome, Fault)
    assert outcome.kind == "blocked"
    template.close()


def _launcher(before: set[int]) -> int:
    [found] = _zygotes() - before
    return found


def _zygotes() -> set[int]:
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


@pytest.mark.thorough
def test_a_launcher_that_does_not_answer_is_not_waited_for(own_launchers: None) -> None:
    before = _zygotes()
    with Pool(Options(silence=0.5)) as pool:
        opened(pool, "Play").close()
        pid = _launcher(before)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(PoolError, match=r"the launcher process has slept for 0.5 s"):
            pool.template("handlers:Play", {}, paths=[HERE])
        assert wait_until(lambda: not Path(f"/proc/{pid}").exists())
        opened(pool, "Play")  # by another one


@pytest.mark.parametrize("silence", [60.0, 0.1])
def test_a_template_that_was_stopped(pool: Pool, silence: float) -> None:
    """It is woken where there is time for that; else it is not waited for."""
    template = pool.template("handlers:Play", {}, paths=[HERE], more={"silence": silence})
    assert isinstance(template, Template)
    assert isinstance(template.run([job("nothing", 1)])[0], Replies)
    assert template._handle is not None
    os.kill(template._handle.pid, signal.SIGSTOP)
    [outcome] = template.run([job("nothing", 2)])
    if silence > 1:
        assert isinstance(outcome, Replies)
    else:
        assert isinstance(outcome, Fault)
        assert (outcome.kind, outcome.is_internal) == ("blocked", True)
        assert outcome.message == "rank 0 did not start in 0.1 s"
    template.close()
