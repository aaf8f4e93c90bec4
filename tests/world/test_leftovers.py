"""Nothing is left behind: processes, files, temporary files, however the owner of a pool ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from aggverify.world import Fault, Job, Pool, PoolError, Replies, Template
from tests.waiting import wait_until
from tests.world.conftest import HERE, MARK, Script, job, opened

Start = Callable[[str], Script]

_BUSY = f"""
import os, signal, sys, threading
from aggverify.world import Job, Options, Pool

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored below a background shell

def start(turn=lambda: None):
    pool = Pool(Options(turn=turn))
    template = pool.template("handlers:Play", {{}}, paths=[{HERE!r}])
    template.run([Job(n, {{"act": "leave_daemon", "on": [0]}}) for n in (1, 2, 4)])
    return pool, template

def busy(template):
    job = Job(4, {{"act": "compute", "seconds": 600, "on": [1]}}, cpu_seconds=600)
    return template.submit([job, Job(2, {{"act": "nothing"}})])
"""


def busy_script(script: Start, rest: str) -> Script:
    """A pool in the middle of a job, with processes that ranks have started beside it."""
    started = script(_BUSY + rest)
    assert started.line() == "ready"
    # The program, launcher, template, 7 ranks, and a daemon of each world.
    # Looked for until they are there: a program just being started has no environment yet.
    wait_until(lambda: len(started.processes()) >= 13)
    assert len(started.processes()) == 13, started.processes()
    return started


_WAIT = "pool, template = start(); p = busy(template); print('ready', flush=True); "


@pytest.mark.parametrize("name", ["SIGKILL", pytest.param("SIGTERM", marks=pytest.mark.thorough)])
def test_the_owner_is_killed(script: Start, name: str) -> None:
    one = busy_script(script, _WAIT + "p.wait()")
    one.process.send_signal(signal.Signals[name])
    assert one.left() == {}
    assert one.process.wait() == -signal.Signals[name]
    assert list(one.temporary.iterdir()) == []


def test_the_owner_is_killed_while_torch_is_imported(script: Start) -> None:
    one = script("from aggverify.world import Pool; p = Pool(); print('ready', flush=True); "
                 "import time; time.sleep(600)")  # fmt: skip
    assert one.line() == "ready"
    one.process.kill()
    assert one.left() == {}


@pytest.mark.thorough
def test_the_owner_made_the_pool_in_a_thread_that_has_ended(script: Start) -> None:
    # The kernel's signal on a parent's death is bound to the thread that made the process.
    one = busy_script(
        script,
        "made = []; t = threading.Thread(target=lambda: made.append(start())); t.start(); "
        "t.join(); p = busy(made[0][1]); print('ready', flush=True); p.wait()",
    )
    one.process.kill()
    assert one.left() == {}


def test_an_interruption_by_the_keyboard(script: Start) -> None:
    one = busy_script(
        script,
        """
busily = []
def turn():
    if busily and busily.pop():
        print("ready", flush=True)  # it waits from now on
pool, template = start(turn)
with pool:
    p = busy(template)
    busily.append(True)
    try:
        p.wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        try:
            p.wait()
        except Exception as error:
            print(error, flush=True)
        print(type(template.run([Job(2, {"act": "nothing"})])[0]).__name__, flush=True)
        raise
""",
    )
    # To the whole process group, as a terminal does it.
    os.killpg(one.process.pid, signal.SIGINT)
    assert one.line() == "interrupted"
    assert one.line() == "these jobs were given up when the pool was interrupted or closed"
    assert one.line() == "Replies"
    assert one.left() == {}
    assert one.process.wait() == -signal.SIGINT


@pytest.mark.thorough
def test_an_interruption_while_a_handler_is_constructed(script: Start) -> None:
    one = script(
        f"""
import signal
from aggverify.world import Pool
signal.signal(signal.SIGINT, signal.default_int_handler)
slow = {{"act": "compute", "seconds": 60}}
with Pool() as pool:
    try:
        pool.template("handlers:FailsToStart", slow, paths=[{HERE!r}])
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(type(pool.template("handlers:Echo", {{}}, paths=[{HERE!r}])).__name__, flush=True)
"""
    )
    # The program, the launcher, the template.
    assert wait_until(lambda: len(one.processes()) >= 3)
    os.killpg(one.process.pid, signal.SIGINT)
    assert one.line() == "interrupted"
    assert one.line() == "Template"
    assert one.left() == {}


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["", "; del pool, template, p", "; sys.exit(0)"])
def test_a_pool_that_nobody_closes(script: Start, end: str) -> None:
    one = busy_script(script, _WAIT + "sys.stdin.read()" + end)
    one.close()
    assert one.left() == {}
    assert one.process.wait() == 0
    assert list(one.temporary.iterdir()) == []


@pytest.mark.thorough
def test_the_launcher_crashes(script: Start) -> None:
    one = busy_script(script, _WAIT + "p.wait()")
    before = set(one.processes()) - {one.process.pid}
    # The launcher is the first process the program started.
    os.kill(min(before), signal.SIGKILL)
    # Another takes its place, for the jobs to go on; of the first and all below it nothing stays.

    def replaced() -> bool:
        now = set(one.processes()) - {one.process.pid}
        return bool(now) and not now & before

    assert wait_until(replaced)
    one.process.kill()
    assert one.left() == {}


@pytest.mark.thorough
def test_jobs_go_on_after_a_crash_of_the_launcher(own_launchers: None) -> None:
    others = _children()
    with Pool() as pool:
        template = opened(pool, "Play")
        assert isinstance(template.run([job("nothing", 2)])[0], Replies)
        for pid in _children() - others:
            os.kill(pid, signal.SIGKILL)
        assert isinstance(template.run([job("nothing", 2)])[0], Replies)
        # Once more with a job under way.
        pending = template.submit([job("compute", 2, seconds=0.2)])
        for pid in _children() - others:
            os.kill(pid, signal.SIGKILL)
        assert isinstance(pending.wait()[0], Replies)


@pytest.mark.thorough
def test_a_sibling_whose_launcher_crashed_before_it_was_asked_for_is_begun_anew(
    own_launchers: None,
) -> None:
    others = _children()
    with Pool() as pool:
        template = opened(pool, "Play")
        template.begin_sibling({"more": 1})
        for pid in _children() - others:
            os.kill(pid, signal.SIGKILL)
        launcher: Any = template._launcher
        wait_until(lambda: launcher._fork_server.gone)
        sibling = template.sibling({"more": 1}, {})
        assert isinstance(sibling, Template), sibling
        assert isinstance(sibling.run([job("nothing", 2)])[0], Replies)


def _children() -> set[int]:
    tasks = Path("/proc/self/task").iterdir()
    pids = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    return {p for p in pids if "world.fork_server" in Path(f"/proc/{p}/cmdline").read_text()}


def test_a_launcher_without_torch_says_so(
    own_launchers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    monkeypatch.syspath_prepend(tmp_path)
    with Pool() as pool, pytest.raises(PoolError, match="no torch here"):
        pool.template("handlers:Echo", {})


def test_a_template_that_nobody_holds_is_closed_with_its_pool(own_launchers: None) -> None:
    others = _children()
    with Pool() as pool:
        opened(pool, "Echo")
        assert len(_children() - others) == 1
    assert _children() == others


def test_files_do_not_add_up(pool: Pool) -> None:
    def once() -> int:
        template = opened(pool, "Play")
        faults: Iterable[Job] = [job("leave", 2, status=1), job("sleep", 2, seconds=9)]
        assert all(isinstance(outcome, Fault) for outcome in template.run(list(faults)))
        template.restart_worlds()
        template.run([job("nothing", 3)])
        template.close()
        pool.template("handlers:FailsToStart", {"act": "leave", "status": 1}, paths=[HERE])
        return len(list(Path("/proc/self/fd").iterdir()))

    assert once() == once() == once()


def test_the_mark_reaches_every_process(script: Start) -> None:
    # Otherwise the tests above would find nothing, whatever is left.
    one = busy_script(script, _WAIT + "p.wait()")
    lines = list(one.processes().values())
    assert sum("sleep" in line for line in lines) == 3
    assert sum("world.fork_server" in line for line in lines) == 9
    assert MARK not in os.environ
