"""Blocked and slow are told apart, on a loaded machine as on an idle one."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from aggverify.world import Replies, Template
from aggverify.world.process_inspector import LocalInspector
from aggverify.world.processes import Look, Thread, glance, look
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


def test_who_sleeps_until_a_time_is_seen_to(python: Run) -> None:
    timed, waits = python(BLOCKED["sleeps"]), python("import threading; threading.Event().wait()")
    while any(look([pid]).running for pid in (timed, waits)):
        time.sleep(0.01)
    seen = look([timed, waits], frozenset({b"loop"}))
    assert [t.number for t in seen.threads if t.timed] == [timed]
    assert not any(t.timed for t in look([timed]).threads), "of no use without threads that tick"


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


MAIN, LOOP = 10, 11
TICKING = Thread(LOOP, b"R", 0, 0.0, 0.0, ticks=True)


@dataclass(frozen=True)
class Scripted(LocalInspector):
    """A rank whose main thread sleeps at every glance, and what is seen at each look."""

    each: Callable[[int], tuple[Thread, Thread]] = lambda n: (main()(n), TICKING)
    looks: Iterator[int] = field(default_factory=lambda: count(1))

    def glance(self, pids: Iterable[int]) -> Look:
        return Look((Thread(MAIN, b"S", 0, 0.0, 0.0),), {}, {}, glance=True)

    def look(self, pids: Iterable[int], ticking: Set[bytes]) -> Look:
        return Look(self.each(next(self.looks)), {}, {}, load=5.0)


def loop(used: float, turns: int = 1) -> Callable[[int], Thread]:
    """At each look it has had so many turns and seconds more, and waited as long as it could."""
    return lambda n: replace(TICKING, switched=turns * n, used=used * n, runnable=0.005 * n)


def main(turns: int = 0) -> Callable[[int], Thread]:
    return lambda n: Thread(MAIN, b"S", turns * n, 0.0, 0.0)


def polls(used: float, *, often: int = 2000) -> Callable[[int], Thread]:
    """Of its first looks every third sees it asleep until a time; all others, waiting to run."""

    def seen(n: int) -> Thread:
        timed = n < often and n % 3 == 0
        state = b"S" if timed else b"R"
        return Thread(MAIN, state, n, used * n, 0.004 * n, timed=timed)

    return seen


@pytest.mark.parametrize(
    ("main", "loop", "blocked"),
    [
        pytest.param(main(), loop(0.0001), True, id="it only wakes"),
        pytest.param(main(), loop(0.004), False, id="it works"),
        pytest.param(main(), loop(0.0, turns=0), False, id="it had no turn"),
        pytest.param(main(), loop(math.nan), False, id="what it used is not known"),
        pytest.param(main(turns=1), loop(0.0001), False, id="another one was switched to"),
        pytest.param(polls(0.00002), loop(0.0001), True, id="another one polls"),
        pytest.param(polls(0.0005), loop(0.0001), False, id="another one works between sleeps"),
        pytest.param(polls(0.00002, often=30), loop(0.0001), False, id="another one polled before"),
        pytest.param(
            lambda n: polls(0.00002)(n) if n == 3 else main(turns=0)(n),
            loop(0.0001),
            True,
            id="another one polled before, and waits now",
        ),
        pytest.param(
            lambda n: replace(main()(n), state=b"R"), loop(0.0001), False, id="another one is awake"
        ),
    ],
)
def test_a_thread_that_wakes_by_itself_and_waits_for_a_processor(
    main: Callable[[int], Thread], loop: Callable[[int], Thread], blocked: bool
) -> None:
    """On a machine with much to do it is hardly ever seen asleep."""
    inspector = Scripted(each=lambda n: (main(n), loop(n)))
    watchdog = Watchdog(0.01, frozenset({b"loop"}), inspector)
    assert any(watchdog.blocked([MAIN], 0.005 * n) for n in range(2000)) == blocked
