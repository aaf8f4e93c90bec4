"""What the first process has found out of a reducer, in a file for all processes that test it.

``pytest -n`` starts several processes, and each would settle mode, engine and precision by itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from aggverify import codec
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Discovered, Subject
from aggverify.files import read_json, write_inside

MAX_BYTES = 1 << 20
Find = Callable[[], Subject | None]


def once(subject: Subject, directory: Path | None, find: Find) -> Subject | None:
    """Return what ``find`` makes of the subject: one process runs it, others wait for its file.

    None is not shared, nor what is raised: then each process finds it out. The directory is the
    session's own; None where there is a single process.
    """
    if directory is None:
        return find()
    name = json.dumps(subject.claim.to_json(), sort_keys=True) + repr(subject.found)
    file = hashlib.sha256(name.encode()).hexdigest()[:32]
    with _turn(directory / f"{file}.lock"):
        if (directory / file).exists():
            return _subject(read_json(directory / file, "a subject", MAX_BYTES))
        found = find()
        if found is not None:
            write_inside(directory, file, _plain(found))
        return found


@contextmanager
def _turn(lock: Path) -> Iterator[None]:
    """Hold the lock, which one process at a time can, and which a process that dies releases."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _plain(subject: Subject) -> str:
    other = None if subject.against is None else codec.plain(subject.against.found)
    claim, found = subject.claim.to_json(), codec.plain(subject.found)
    return json.dumps({"claim": claim, "found": found, "beside": other})


def _subject(data: Any) -> Subject:
    found = codec.read(Discovered, data["found"], "what was found out")
    subject = replace(Subject.of(Claim.from_json(data["claim"])), found=found)
    if subject.against is None:
        return subject
    other = codec.read(Discovered, data["beside"], "what was found out of the other path")
    return replace(subject, against=replace(subject.against, found=other))
