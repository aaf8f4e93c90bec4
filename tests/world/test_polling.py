"""Ranks that sleep, look and sleep again while they start, on a machine that is busy."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aggverify.world import Fault, Pool, Replies, Template
from aggverify.world.polling import Polling
from aggverify.world.process_inspector import LocalInspector
from aggverify.world.processes import Look, Thread
from tests.waiting import wait_until
from tests.world.conftest import HERE, job


@contextmanager
def process(code: str) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None and started.stdout.readline() == b"begins\n"
        yield started.pid
        started.kill()


POLLS = "import time\nprint('begins', flush=True)\nwhile True: time.sleep(0.005)"
WORKS = "print('begins', flush=True)\nwhile True: pass"
BOTH = (
    "import time\nprint('begins', flush=True)\n"
    "while True:\n    time.sleep(0.005)\n    end = time.process_time() + 0.002\n"
    "    while time.process_time() < end: pass"
)


def test_who_polls_is_told_from_who_works() -> None:
    with process(POLLS) as polls, process(WORKS) as works, process(BOTH) as both:
        seen = Polling()
        wait_until(lambda: seen.seconds([polls], time.monotonic()) > 0.3)
        for pid in (works, both):
            used = time.process_time()
            assert not any(seen.seconds([polls, pid], time.monotonic()) for _ in range(200))
            assert time.process_time() > used
    assert seen.seconds([], time.monotonic()) == 0.0


def test_ranks_that_poll_while_they_start_are_not_waited_for(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine, where one of them is always about to run."""
    busy = Look((Thread(os.getpid(), b"R", 0, 0.0, 0.0),), {}, {}, glance=True)
    monkeypatch.setattr(LocalInspector, "glance", lambda self, pids: busy)
    more = {"second_look": 0.02}
    made = pool.template("handlers:StartsPolling", {"rank": 1}, paths=[HERE], more=more)
    assert isinstance(made, Template)
    polls, awake = made.run([job("nothing", 2), job("nothing", 1)])
    assert isinstance(polls, Fault) and isinstance(awake, Replies)
    assert (polls.kind, polls.rank, polls.is_internal) == ("blocked", 1, True)
    made.close()
