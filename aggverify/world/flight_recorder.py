"""Shared memory, a page per rank, that the parent can read while the rank hangs or after it died.

Layout of the file: a head (job number, length of the text, where the rank is, pulse, its pid),
the entries of this job's trace as lines, then from ``DUMP`` on what faulthandler wrote.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from typing import Protocol

_HEAD = struct.Struct("<IIIII")
_INSIDE, _OWN = 1, 2
DUMP = 1 << 16
_DUMP_LIMIT = 1 << 17


def create() -> int:
    """Make a new flight recorder and return its file descriptor."""
    fd = os.memfd_create("flight_recorder")
    os.ftruncate(fd, DUMP)
    os.lseek(fd, DUMP, os.SEEK_SET)
    return fd


class RemoteRecord(Protocol):
    """A flight recorder on another machine."""

    def pread(self, size: int, at: int) -> bytes:
        """Read ``size`` bytes from offset ``at``."""
        ...

    def size(self) -> int:
        """Return the size of its file."""
        ...


Page = int | RemoteRecord
"""The parent's access to a page: an open file, or what reads one on another machine."""


def _pread(page: Page, size: int, at: int) -> bytes:
    return os.pread(page, size, at) if isinstance(page, int) else page.pread(size, at)


class Writer:
    """The rank's side: a few stores per collective."""

    __slots__ = ("_end", "_job", "_memory", "_own", "_pid", "_pulse")

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, DUMP)
        self._pid = os.getpid()
        self._end = _HEAD.size
        self._job = 0
        self._own = 0
        self._pulse = 0

    def begin(self, job: int) -> None:
        """Wipe for the next job."""
        self._end = _HEAD.size
        self._job = job
        self._own = 0
        _HEAD.pack_into(self._memory, 0, job, 0, 0, self._pulse, self._pid)

    def enter(self, entry: str) -> None:
        """Note that a collective begins; entries beyond the page are dropped."""
        line = entry.encode() + b"\n"
        end = self._end + len(line)
        if end <= DUMP:
            self._memory[self._end : end] = line
            self._end = end
        self._note(_INSIDE)

    def leave(self) -> None:
        """Note that the collective has returned."""
        self._note(0)

    def own(self, *, begins: bool) -> None:
        """Note that work of the handler's own begins or ends, apart from the code under test."""
        self._own = _OWN if begins else 0
        self._note(0)

    def pulse(self) -> None:
        """Note that there was some progress."""
        self._pulse = (self._pulse + 1) & 0xFFFFFFFF
        self._note(0)

    def _note(self, inside: int) -> None:
        if os.getpid() != self._pid:
            # A child forked by C code, past the fork guard: it must not go on as a rank.
            os._exit(0)
        length = self._end - _HEAD.size
        where = inside | self._own
        _HEAD.pack_into(self._memory, 0, self._job, length, where, self._pulse, self._pid)


@dataclass(frozen=True, slots=True)
class FlightRecord:
    """What a page holds: the job, its entries so far, and the last one while it is in progress.

    ``own``: the handler was at its own work. ``pid``: what the rank calls itself, 0 for none.
    """

    job: int
    entries: tuple[str, ...]
    inside: str | None
    own: bool
    pid: int = 0


def read(page: Page) -> FlightRecord:
    """Read the record in the parent; what the rank has scribbled over or cut off reads as empty."""
    data = _pread(page, DUMP, 0).ljust(_HEAD.size, b"\0")
    job, length, where, _, pid = _HEAD.unpack_from(data)
    text = data[_HEAD.size : _HEAD.size + length].decode(errors="replace")
    entries = tuple(text.splitlines())
    inside = entries[-1] if where & _INSIDE and entries else None
    return FlightRecord(job, entries, inside, bool(where & _OWN), pid)


def signs(page: Page) -> bytes:
    """Return the head, which is different after every sign of life."""
    return _pread(page, _HEAD.size, 0)


def untouched(page: Page) -> bool:
    """Whether no rank has ever written there."""
    return not any(signs(page))


def dump_size(page: Page) -> int:
    """Bytes faulthandler has written so far."""
    size = os.fstat(page).st_size if isinstance(page, int) else page.size()
    return max(0, size - DUMP)


def dump(page: Page, start: int = 0) -> str:
    """Return what faulthandler wrote after so many bytes, cut to a sane length."""
    return _pread(page, _DUMP_LIMIT, DUMP + start).decode(errors="replace")
