"""What jobs have come to, in a file as well: a run that is begun again goes on where it was.

The same run sends the same jobs in the same order. Those whose replies are in the file are not
sent to ranks again; a job that came to a fault, and whatever was on its way, is.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aggverify.files import contents
from aggverify.world.faults import Outcome, Replies, Reply

SCHEMA = 1


@dataclass(slots=True)
class Journal:
    """A file of replies. ``known``: how many it had when it was taken up.

    What cannot be written is not there to go on from: the run itself does without.
    """

    path: Path
    known: int = 0
    _replies: defaultdict[str, deque[Replies]] = field(default_factory=lambda: defaultdict(deque))
    _file: int | None = None

    @staticmethod
    def begun(path: Path) -> Journal:
        """A new one, in the place of any that lies there; raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        made = Journal(path)
        made._open(os.O_CREAT | os.O_EXCL)
        made._write({"schema": SCHEMA})
        return made

    @staticmethod
    def taken_up(path: Path) -> Journal | None:
        """The one that an earlier start of the run has left, None where none was."""
        try:
            head, *lines = contents(path).split(b"\n")[:-1]  # the last one may be half a line
            if json.loads(head) != {"schema": SCHEMA}:
                return None
            made = Journal(path)
            for name, replies in map(_read, lines):
                made._replies[name].append(replies)
                made.known += 1
            # Half a line would spoil the next.
            os.truncate(path, len(head) + 1 + sum(len(line) + 1 for line in lines))
            made._open(0)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return made

    def replies(self, name: str) -> Replies | None:
        """Of a job of that name; each time of the next one, as it was sent several times."""
        left = self._replies.get(name)
        return left.popleft() if left else None

    def add(self, name: str, outcome: Outcome) -> None:
        """Note what a job came to."""
        if isinstance(outcome, Replies):
            each = [
                [r.data, base64.b64encode(r.blob).decode(), r.changes, r.notes]
                for r in outcome.replies
            ]
            self._write({"job": name, "replies": each})

    def end(self, *, keep: bool) -> None:
        """Close the file, and remove it where nothing will go on from it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if not keep:
            self.path.unlink(missing_ok=True)

    def _open(self, flags: int) -> None:
        how = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | flags
        self._file = os.open(self.path, how, 0o600)

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        try:
            whole = os.write(self._file, text) == len(text)
        except OSError:
            whole = False
        if not whole:  # no room: what is there is kept, the rest is run again
            os.close(self._file)
            self._file = None


def named(*parts: object) -> str:
    """The name of a job, by all that its replies depend on."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def _read(line: bytes) -> tuple[str, Replies]:
    read = json.loads(line)
    return read["job"], Replies(tuple(_replies(read["replies"])))


def _replies(each: list[Any]) -> Iterator[Reply]:
    for data, blob, changes, notes in each:
        yield Reply(data, base64.b64decode(blob, validate=True), tuple(changes), tuple(notes))
