"""The one line of progress on a terminal: what it shows, and that it stays one line."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import sys
import termios
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from aggverify.codes import CODES
from aggverify.report import terminal as terminal_module
from aggverify.report.terminal import Terminal
from aggverify.report.text import Style
from aggverify.run.outcome.events import (
    CheckFinished,
    ConfirmedFinding,
    Event,
    Finished,
    Phase,
    Progress,
    Seen,
    SubjectChosen,
    Waiting,
)
from tests.conftest import EXAMPLES, ROOT

NAME = "independent_of_context_parallel_size"
RUNS = Progress(NAME, 1234, Phase.STREAM)
ANYTHING = cast(Any, SimpleNamespace())


def lines(written: str) -> list[str]:
    """What stood on the line, one time after another."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    return [line.strip("\n")[2:] for line in plain.split("\r") if line.strip()]


WAITS = "the cases of 12 known findings are run again, one after another [red]"


@pytest.mark.parametrize(
    ("width", "event", "shown"),
    [
        (
            120,
            RUNS,
            f"check 5 of 44: {NAME} stream · 1,234 steps · 0 findings · 20 s · ~200 s left",
        ),
        (
            80,
            RUNS,
            "check 5 of 44: independent_of… · 1,234 steps · 0 findings · 20 s · ~200 s left",
        ),
        (63, RUNS, "check 5 of 44 · 1,234 steps · 0 findings · 20 s · ~200 s left"),
        (40, RUNS, "check 5 of 44 · 1,234 steps · 0 findi…"),
        (80, Waiting(WAITS), WAITS),
        (40, Waiting(WAITS), "the cases of 12 known findings are ru…"),
    ],
)
def test_the_line_fits_the_terminal(width: int, event: Event, shown: str) -> None:
    seconds, told = iter((0.0, 20.0)), StringIO()
    console = Console(file=told, force_terminal=True, width=width, color_system=None)
    terminal = Terminal(console, live=True, clock=lambda: next(seconds))
    terminal(SubjectChosen(ANYTHING, 44))
    for _ in range(4):
        terminal(CheckFinished(ANYTHING))
    terminal(event)
    terminal.close()
    assert set(lines(told.getvalue())) == {shown}


def test_without_a_terminal_a_finding_has_one_line_and_progress_one_in_ten_seconds() -> None:
    """As soon as it is confirmed, at any width; what it computes is in the verdict."""
    now, told = [0.0], StringIO()
    terminal = Terminal(Console(file=told), style=Style(60), clock=lambda: now[0])
    first, other = CODES["AGV202"], CODES["AGV203"]
    seen = SimpleNamespace(code=first.code, traits=first)
    terminal(SubjectChosen(ANYTHING, 44))
    for at, event in ((2.0, Seen(cast(Any, seen))), (9.0, RUNS), (12.0, RUNS), (14.0, RUNS)):
        now[0] = at
        terminal(event)
    for code in (first, other):
        finding = SimpleNamespace(code=code.code)
        terminal(ConfirmedFinding(cast(Any, SimpleNamespace(finding=finding))))
    assert told.getvalue().split("\n") == [
        f"[  2.0 s] AGV202 {first.title}",
        "[ 12.0 s] check 1 of 44 · 1,234 steps · 1 finding",
        f"[ 14.0 s] AGV203 {other.title}",
        "",
    ]


def test_each_verdict_has_its_own_steps_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor counts through a command, and so does the clock that is shown."""
    for name in ("written", "harmless"):
        monkeypatch.setattr(terminal_module, name, lambda *_: ANYTHING)
    monkeypatch.setattr(terminal_module.text, "verdict_lines", lambda *_: ())
    now, told = [0.0], StringIO()
    terminal = Terminal(Console(file=told), style=Style(70), clock=lambda: now[0])
    for began, earlier, seconds in ((0.0, 0, 20.0), (20.0, 1234, 12.0)):
        now[0] = began
        terminal(Progress("simplest step", earlier, Phase.SMOKE))
        terminal(SubjectChosen(ANYTHING, 44))
        for _ in range(4):
            terminal(CheckFinished(ANYTHING))
        now[0] = began + seconds
        terminal(Progress(NAME, earlier + 1234, Phase.STREAM))
        terminal(Finished(cast(Any, SimpleNamespace(verdict=None))))
    assert told.getvalue().split("\n") == [
        "[ 20.0 s] check 5 of 44 · 1,234 steps · 0 findings · ~200 s left",
        "[ 32.0 s] check 5 of 44 · 1,234 steps · 0 findings · ~120 s left",
        "",
    ]


@pytest.mark.thorough
def test_a_check_on_a_terminal_that_is_interrupted(tmp_path: Path) -> None:
    """In a terminal of 60 columns: one line, and after Ctrl-C the verdict of what is known."""
    shutil.copy(EXAMPLES / "native" / "sum" / "token_mean.py", tmp_path / "loss.py")
    child, terminal = pty.fork()
    if not child:
        os.chdir(tmp_path)
        given = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
        given |= {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
        os.execve(sys.executable, [sys.executable, "-m", "aggverify", "check", "loss.py"], given)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 60, 0, 0))
    told = b""
    while True:
        try:
            told += os.read(terminal, 4096)
        except OSError:  # its end
            break
        if b"check 4 of " in told and b"^C" not in told:
            os.write(terminal, b"\x03")
            told += b"^C"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    before, _, after = told.decode().partition("^C")
    assert "\x1b[1A" not in before and "\n" not in before, "never of several lines"
    assert all(len(line) <= 58 for line in lines(before)), before
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", after)
    assert "\nINCOMPLETE  interrupted: " in plain and after.count("\x1b[?25h") == 1
    assert plain.rstrip().endswith("aggverify: interrupted")
