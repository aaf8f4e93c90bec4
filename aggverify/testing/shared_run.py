"""The verdict of one run, in a file for all processes of a session that have tests of it.

``pytest -n`` starts several processes, and deals the tests of one reducer to all of them. The lock
of a run's file is held by one of them at a time, and released by one that dies.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from aggverify import codec
from aggverify.errors import AggverifyError
from aggverify.files import read_json, write_inside
from aggverify.model import MAX_BYTES, Verdict

Known = Verdict | str
"""A verdict, or why there is none."""


def once(
    key: str, directory: Path | None, run: Callable[[], Verdict], *, waits: bool = True
) -> Known | None:
    """Return what ``run`` returns or raises: one process runs it, others read its file.

    ``key``: what distinguishes the run from others. ``directory``: the session's own, or None where
    there is a single process. ``waits``: for another process that is at it; None otherwise.
    """
    if directory is None:
        return _known(run)
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    try:
        lock = (directory / f"{name}.lock").open("w")
    except OSError:  # no room, for example: each process runs it then
        return _known(run)
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            return None
        if (directory / name).exists():
            data = read_json(directory / name, "a verdict", MAX_BYTES)
            return data if isinstance(data, str) else codec.read(Verdict, data, "a verdict")
        found = _known(run)
        plain = found if isinstance(found, str) else codec.plain(found)
        with suppress(OSError):
            write_inside(directory, name, json.dumps(plain))
        return found


def _known(run: Callable[[], Verdict]) -> Known:
    try:
        return run()
    except AggverifyError as error:
        return str(error)
