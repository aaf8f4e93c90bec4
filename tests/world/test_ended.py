"""Whoever is killed, asked to end or stopped for a while: jobs go on where there is anybody to ask
for them, and nothing is left behind.

On a quiet machine that takes a tenth of a second, which ``reports/containment.py`` measures and
holds to one. Here, beside other tests, it may take ``LIMIT``: with thirty others at work on two
processors it took half a second, and a second where the template had just been woken.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from aggverify.world import linux
from tests.waiting import wait_until
from tests.world.conftest import HERE, Script

STOPPED, BRIEFLY = 20.0, 2.0
"""Seconds; what is looked at for having slept has been looked at by then many times. The shorter is
enough for a clock to see that its process was away."""
LIMIT = 5.0
"""Seconds until all are gone."""
PROGRAM = f"""
import sys
from aggverify.world import Job, Pool, Replies

def told(outcome):
    return "Replies" if isinstance(outcome, Replies) else outcome.kind

with Pool() as pool:
    template = pool.template("handlers:Play", {{}}, paths=[{HERE!r}])
    template.run([Job(2, {{"act": "leave_daemon", "on": [0]}})])
    pending = template.submit([Job(2, {{"act": "compute", "seconds": SECONDS}}, cpu_seconds=60)])
    print("ready", flush=True)
    sys.stdin.readline()
    print(told(pending.wait()[0]), flush=True)
    print(told(template.run([Job(2, {{"act": "nothing"}})])[0]), flush=True)
"""
SHORT, LONG = 0.5, 30.0
"""Seconds the job computes. A rank that is to die at work must still compute when the signal comes,
however late that is on a busy machine."""
LOST, AGAIN, STILL = {"died"}, {"Replies"}, {"Replies", "blocked"}
COMES: dict[tuple[str, str], set[str] | None] = {
    ("parent", "SIGKILL"): None,
    ("parent", "SIGTERM"): None,
    ("parent", "SIGSTOP"): AGAIN,
    ("launcher", "SIGKILL"): AGAIN,
    ("launcher", "SIGTERM"): AGAIN,
    ("launcher", "SIGSTOP"): AGAIN,
    ("template", "SIGKILL"): AGAIN,
    ("template", "SIGTERM"): AGAIN,
    ("template", "SIGSTOP"): AGAIN,
    ("one rank", "SIGKILL"): LOST,
    ("one rank", "SIGTERM"): LOST,
    ("one rank", "SIGSTOP"): STILL,
    ("all ranks", "SIGKILL"): LOST,
    ("all ranks", "SIGTERM"): LOST,
    ("all ranks", "SIGSTOP"): STILL,
}
"""What becomes of the job under way; None where nobody is there to tell. One that a rank's death
has ended is run again by those who know whether the reducer has done it."""


def those(who: str, parent: int) -> list[int]:
    """Processes of that name, the program's own first."""
    [launcher] = linux.children(parent)
    [template] = linux.children(launcher)
    ranks = sorted(linux.children(template))[:2]  # what they have left behind comes after them
    return {
        "parent": [parent],
        "launcher": [launcher],
        "template": [template],
        "one rank": ranks[:1],
        "all ranks": ranks,
    }[who]


def rows() -> list[Any]:
    whose = ("parent", "launcher", "template", "one rank", "all ranks")
    return [
        pytest.param(
            who,
            name,
            STOPPED if name == "SIGSTOP" else 0.0,
            marks=pytest.mark.thorough if name == "SIGKILL" else pytest.mark.exhaustive,
            id=f"{name} of {who}",
        )
        for who, name in product(whose, ("SIGKILL", "SIGTERM", "SIGSTOP"))
    ] + [
        pytest.param(
            "parent",
            "SIGSTOP",
            BRIEFLY,
            marks=pytest.mark.thorough,
            id="SIGSTOP of parent, briefly",
        )
    ]


@pytest.mark.parametrize(("who", "name", "stopped"), rows())
def test_nothing_is_left(
    script: Callable[[str], Script],
    record_property: Callable[[str, object], None],
    who: str,
    name: str,
    stopped: float,
) -> None:
    seconds = LONG if COMES[who, name] == LOST else SHORT
    one = script(PROGRAM.replace("SECONDS", str(seconds)))
    assert one.line() == "ready"
    # The program, launcher, template, two ranks and what one of them has started.
    assert wait_until(lambda: len(one.processes()) >= 6)
    pids = those(who, one.process.pid)
    for pid in pids:
        os.kill(pid, signal.Signals[name])
    if stopped:
        time.sleep(stopped)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    expected = COMES[who, name]
    if expected is not None:
        assert one.process.stdin is not None
        one.process.stdin.write("go\n")
        one.process.stdin.flush()
        assert one.line() in expected
        assert one.line() == "Replies"
    began = time.monotonic()
    assert one.left() == {}
    seconds = time.monotonic() - began
    record_property("seconds", round(seconds, 2))  # the report's
    assert seconds < LIMIT
