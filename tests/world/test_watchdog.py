"""Blocked and slow are told apart, on a loaded machine as on an idle one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from aggverify.world import Replies, Template
from aggverify.world.processes import glance, look
from aggverify.world.watchdog import Watchdog
from tests.waiting import GIVEN_UP_AFTER
from tests.world.conftest import job

Run = Callable[[str], int]


@pytest.fixture
def python() -> Iterator[Run]:
    started: list[subprocess.Popen[bytes]] = []

    def run(code: str) -> int:
        process = subprocess.Popen(
            [sys.executable, "-c", f"print(flush=True)\n{code}"],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process.pid

    yield run
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        assert process.stdout is not None
        process.stdout.close()
        process.wait()


def watched(pid: int, seconds: float = GIVEN_UP_AFTER) -> bool:
    """Whether a watchdog that looks at a process, as the pool does, finds it blocked."""
    watchdog = Watchdog(0.01)
    watchdog.progress(time.monotonic())
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(max(0.0, watchdog.next_look - time.monotonic()))
        if watchdog.blocked([pid], time.monotonic()):
            return True
    return False


BLOCKED = {
    "sleeps": "import time; time.sleep(600)",
    "waits for its thread": "import threading as t, time\n"
    "a = t.Thread(target=time.sleep, args=(600,)); a.start(); a.join()",
    "waits for a child asleep": "import subprocess; subprocess.run(['sleep', '600'])",
    "polls": "import time\nwhile True: time.sleep(0.005)",
    "polls in a child": "import subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', 'import time\\nwhile True: time.sleep(0.005)'])",
}
AT_WORK = {
    "computes": "while True: pass",
    "computes in a thread": "import threading as t\ndef f():\n while True: pass\n"
    "a = t.Thread(target=f); a.start(); a.join()",
    "computes in short threads": "import threading as t\nwhile True:\n"
    " a = t.Thread(target=sum, args=(range(10**5),)); a.start(); a.join()",
    "computes in a child": "import subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', 'while True: pass'])",
    "works and sleeps by turns": "import time\nwhile True:\n sum(range(10**5)); time.sleep(.001)",
}


@pytest.mark.parametrize("what", BLOCKED)
def test_blocked(python: Run, what: str) -> None:
    assert watched(python(BLOCKED[what]))


@pytest.mark.parametrize("what", AT_WORK)
def test_at_work(python: Run, what: str) -> None:
    assert not watched(python(AT_WORK[what]), 0.5)


def test_processor_time_is_counted_with_children(python: Run) -> None:
    pid = python(AT_WORK["computes in a child"])
    watchdog = Watchdog(0)
    while watchdog.cpu_since_progress().get(pid, 0) < 0.05:
        assert not watchdog.blocked([pid], time.monotonic())
        time.sleep(0.01)


def test_processor_time_before_progress_does_not_count(python: Run) -> None:
    pid = python("while True: pass")
    watchdog = Watchdog(0)
    while watchdog.cpu_since_progress().get(pid, 0) < 0.2:
        assert not watchdog.blocked([pid], time.monotonic())
        time.sleep(0.01)
    watchdog.progress(time.monotonic())
    assert watchdog.cpu_since_progress() == {}
    assert not watchdog.blocked([pid], time.monotonic())
    assert watchdog.cpu_since_progress() == {pid: 0}


def test_a_main_thread_that_runs_is_all_that_is_read(python: Run) -> None:
    busy, asleep = python("while True: pass"), python("import time; time.sleep(600)")
    while look([asleep]).running or not glance([busy]).running:
        time.sleep(0.01)
    assert [t.number for t in glance([busy, asleep]).threads] == [busy, asleep]
    assert not glance([asleep]).running
    assert look([busy]).cpu[busy] > 0


def test_a_process_that_is_gone_is_not_blocked() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert look([process.pid]).threads == ()
    assert not watched(process.pid, 0.1)


@pytest.mark.thorough
def test_a_loaded_machine_raises_no_false_alarm(play: Template, python: Run) -> None:
    for _ in range(4 * (os.cpu_count() or 1)):
        python(AT_WORK["computes"])
    jobs = [job("nothing", world) for world in (1, 2, 4, 8) for _ in range(10)]
    jobs += [job("compute", 4, seconds=0.02), job("many_collectives", 2)]
    outcomes = play.run(jobs)
    assert all(isinstance(outcome, Replies) for outcome in outcomes), [
        outcome for outcome in outcomes if not isinstance(outcome, Replies)
    ]
