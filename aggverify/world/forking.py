"""Forks: ours, and those of the code under test.

Ours are refused where CUDA runs, which does not survive one. A child of theirs must not go on as a
rank.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

_OURS = str(Path(__file__).parent.parent) + os.sep


def cuda_runs() -> bool:
    """Whether CUDA has been initialised in this process; does not initialise it."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


class _Forks:
    """Whether the fork under way is ours, and whether others happened in this process."""

    ours = False
    others = False


def fork() -> int:
    """``os.fork``; raises RuntimeError where CUDA has been initialised."""
    if cuda_runs():
        raise RuntimeError("CUDA was initialised in a process that forks ranks")
    _Forks.ours = True
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of a fork next to other threads: ours sleep (see threads.py).
            warnings.simplefilter("ignore", DeprecationWarning)
            return os.fork()
    finally:
        _Forks.ours = False


def install_fork_guard() -> None:
    """From here on a child that other code forks ends as soon as it returns to code of ours.

    It would go on with the rank's loop, and fork again: with a reducer that leaves one child per
    call, every call would double their number. Holds in processes forked from this one, too.
    """
    os.register_at_fork(after_in_parent=_noted, after_in_child=_kept_out)


def reap() -> None:
    """Reap ended children of the code under test, which count as processes until then."""
    while _Forks.others:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return


def _noted() -> None:
    _Forks.others |= not _Forks.ours


def _kept_out() -> None:
    if not _Forks.ours:
        # A profile function makes this child slower, but nothing that it does is measured.
        sys.setprofile(_came_back)


def _came_back(frame: FrameType, event: str, value: object) -> None:
    caller = frame.f_back
    if event == "return" and caller is not None and caller.f_code.co_filename.startswith(_OURS):
        os._exit(0)
