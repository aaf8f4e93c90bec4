"""Ask processes for their Python stacks, and make faulthandler's answer readable."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from aggverify.world import slate

# faulthandler writes the stacks when a process gets this; nobody else uses it.
STACK_SIGNAL = signal.SIGRTMAX - 5

_OURS = str(Path(__file__).resolve().parent)
# Frames of ours, of the interpreter's start, and a list of all that was ever imported.
_NOT_TOLD = (f'File "{_OURS}', 'File "<string>"', "Extension modules:")
_LIMIT = 8_000
_ALIKE = 3
_PATIENCE = 0.25
_PAUSE = 0.003


def collect(processes: Mapping[int, tuple[int, int]]) -> dict[int, str]:
    """Stacks per key, of ``(pid, slate)``; what has not come after a moment is left out."""
    before = {key: slate.dump_size(page) for key, (_, page) in processes.items()}
    for pid, _ in processes.values():
        with contextlib.suppress(OSError):
            os.kill(pid, STACK_SIGNAL)
            os.kill(pid, signal.SIGCONT)  # a stopped process could not answer
    ends = time.monotonic() + _PATIENCE
    sizes: dict[int, int] = {}
    while time.monotonic() < ends:
        time.sleep(_PAUSE)
        now = {key: slate.dump_size(page) for key, (_, page) in processes.items()}
        # Complete when it has stopped growing: a dump carries no end mark.
        if now == sizes and all(now[key] > before[key] for key in now):
            break
        sizes = now
    dumps = {key: tidy(slate.dump(page)) for key, (_, page) in processes.items()}
    return {key: text for key, text in dumps.items() if text}


def tidy(dump: str) -> str:
    """Frames innermost first as faulthandler gives them, without this package's own; of a deep
    recursion the innermost."""
    lines = [line for line in dump.splitlines() if not line.lstrip().startswith(_NOT_TOLD)]
    text = "\n".join(_few_of_each(lines)).strip()
    return text if len(text) <= _LIMIT else text[:_LIMIT] + " ..."


def _few_of_each(lines: Sequence[str]) -> Iterator[str]:
    seen: Counter[str] = Counter()
    for line in lines:
        seen[line] += bool(line)
        if seen[line] <= _ALIKE:
            yield line
        elif seen[line] == _ALIKE + 1:
            yield "  ... and again"
