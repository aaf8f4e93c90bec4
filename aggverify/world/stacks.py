"""Ask processes for their Python stacks, and read what faulthandler answers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Mapping

from aggverify.world import flight_recorder, linux
from aggverify.world.frames import Frame, Stack, owner

# faulthandler writes the stacks when a process gets this; nothing else uses it.
STACK_SIGNAL = signal.SIGRTMAX - 5

_PATIENCE = 0.25
_PAUSE = 0.003


def ask(pid: int, *, wake: bool) -> None:
    """Have a process write its stacks.

    ``wake``: continue it first if it was stopped, with this signal as the first that it handles.
    """
    with contextlib.suppress(OSError):
        if wake:
            linux.signal_main_thread(pid, STACK_SIGNAL)
            os.kill(pid, signal.SIGCONT)
        else:
            os.kill(pid, STACK_SIGNAL)


def collect(
    processes: Mapping[int, tuple[int, flight_recorder.Page]], asked: Callable[[int], None]
) -> dict[int, tuple[Stack, ...]]:
    """Stacks per key, of ``(pid, recorder)``; what has not come after a moment is left out.

    ``asked``: has one write them (``ask``).
    """
    before = {key: flight_recorder.dump_size(page) for key, (_, page) in processes.items()}
    for pid, _ in processes.values():
        asked(pid)
    ends = time.monotonic() + _PATIENCE
    sizes: dict[int, int] = {}
    while time.monotonic() < ends:
        time.sleep(_PAUSE)
        now = {key: flight_recorder.dump_size(page) for key, (_, page) in processes.items()}
        # Complete when it has stopped growing: a dump carries no end mark.
        if now == sizes and all(now[key] > before[key] for key in now):
            break
        sizes = now
    pages = {key: page for key, (_, page) in processes.items()}
    dumps = {key: parse(flight_recorder.dump(page, before[key]))[1] for key, page in pages.items()}
    return {key: threads for key, threads in dumps.items() if threads}


# As CPython's Python/traceback.c writes it, which is no interface, but has not changed in years.
_THREAD = re.compile(r"(?:Current t|T)hread (0x[0-9a-f]+)")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d{1,9}) in (?P<function>.*)')
_FATAL = "Fatal Python error: "


def parse(dump: str) -> tuple[str, tuple[Stack, ...]]:
    """Return a dump's fatal error, "" for none, and its threads with frames, innermost first."""
    crash, thread = "", ""
    threads: dict[str, list[Frame]] = {}
    for line in dump.splitlines():
        if line.startswith(_FATAL):
            crash = line.removeprefix(_FATAL)
        elif (heading := _THREAD.match(line)) is not None:
            thread = heading[1]
        elif (found := _FRAME.fullmatch(line)) is not None:
            file, number, function = found.group("file", "line", "function")
            frame = Frame(file, int(number), function, owner(file))
            threads.setdefault(thread, []).append(frame)
    return crash, tuple(Stack(name, tuple(frames)) for name, frames in threads.items())
