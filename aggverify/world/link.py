"""The parent's end of one rank: connection, captured output, flight recorder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aggverify.world import answers, flight_recorder
from aggverify.world.wire import Decoder, Frame, WireError

_CHUNK = 1 << 18
_TAIL = 8_000
MUCH = 1 << 14
"""Bytes of an answer at a time that may have filled the connection: its sender then waited."""


@dataclass(slots=True)
class Printed:
    """What the first rank of each world has printed: the beginning and the end are kept."""

    head: bytes = b""
    tail: bytes = b""
    dropped: int = 0
    """Bytes between the two."""

    def add(self, data: bytes) -> None:
        """Take more of it."""
        room = _TAIL - len(self.head)
        self.head += data[:room]
        rest = self.tail + data[room:]
        self.tail = rest[-_TAIL:]
        self.dropped += len(rest) - len(self.tail)

    def clear(self) -> None:
        """Forget it."""
        self.head = self.tail = b""
        self.dropped = 0

    def __bool__(self) -> bool:
        return bool(self.head)

    @property
    def lines(self) -> list[str]:
        """Its lines, with one for what was dropped."""
        if not self.dropped:
            return (self.head + self.tail).decode(errors="replace").splitlines()
        head, tail = (p.decode(errors="replace").splitlines() for p in (self.head, self.tail))
        return [*head, f"… {self.dropped:,} bytes dropped …", *tail]


@dataclass(slots=True)
class CapturedOutput:
    """The reading end of a pipe of which only the tail is kept, whatever was written."""

    fd: int
    much: int
    """Bytes at a time that may have filled the pipe: its writer then waited for us to read them."""
    tail: bytes = b""
    size: int = 0
    """Bytes that were written since this was last set back."""
    copy_to: Printed | None = None
    """What all of it is added to as well, if set."""

    def read(self) -> int:
        """Take what is there; how many bytes that was, 0 at the end."""
        data = os.read(self.fd, _CHUNK)
        self._keep(data, len(data))
        return len(data)

    def _keep(self, data: bytes, size: int) -> None:
        self.tail = (self.tail + data)[-_TAIL:]
        self.size += size
        if self.copy_to is not None:
            self.copy_to.add(data)

    def close(self) -> None:
        """Let go of it."""
        os.close(self.fd)

    def read_rest(self) -> None:
        """Take what is there and was not read; no more than fits into a pipe."""
        with contextlib.suppress(BlockingIOError):
            self.read()

    def drain(self) -> str:
        """Everything that can be read now; the tail as text."""
        with contextlib.suppress(BlockingIOError):
            while self.read():
                pass
        return self.tail.decode(errors="replace")


def output_pipe() -> tuple[CapturedOutput, int]:
    """Return the parent's reading end, and the descriptor to hand to a child."""
    read, write = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read, False)
    with contextlib.suppress(OSError):  # what prints by the megabyte waits less often
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _CHUNK)
    # Half its size may fill it: two writes that do not fit into one page take a page each.
    return CapturedOutput(read, fcntl.fcntl(read, fcntl.F_GETPIPE_SZ) // 2), write


class Received(NamedTuple):
    """What a rank has sent: so many bytes, and whether any message was complete."""

    size: int = 0
    complete: bool = False


@dataclass(slots=True)
class Link:
    """One rank as the parent sees it."""

    rank: int
    sock: socket.socket
    output: CapturedOutput
    recorder: flight_recorder.Page
    pid: int | None = None
    replies: deque[Frame] = field(default_factory=deque)
    out: bytearray = field(default_factory=bytearray)
    decoder: Decoder = field(default_factory=lambda: Decoder(answers.SMALL))
    asked: int = 1
    """Answers asked for so far: that it is ready, and one for each dispatch."""
    answered: int = 0
    prepared: int = 0
    ended: bool = False
    ended_at: float = 0.0
    exit_status: int | None = None
    garbage: str | None = None
    refused: str = ""
    """Why no process was started for it."""
    preparing: bool = False
    """Whether it is at the handler's own work before a job, not at the job."""

    def read(self) -> Received:
        """Take what has arrived."""
        try:
            data = self.sock.recv(_CHUNK)
        except BlockingIOError:
            return Received()
        except OSError:  # reset by a peer that died
            data = b""
        if not data:
            self._end()
            return Received()
        return self.hear(data)

    def hear(self, data: bytes) -> Received:
        """Decode and check these bytes; the link ends at the first that is no answer."""
        before = self.answered + self.prepared
        try:
            for header, blob in self.decoder.feed(data):
                answers.rank(header, started=self.answered > 0)
                self._take(header, blob)
        except WireError as error:
            self._end()
            self.garbage = f"sent what is no answer: {error}"
        return Received(len(data), self.answered + self.prepared > before)

    def _take(self, header: dict[str, Any], blob: bytes) -> None:
        """Take one message; raises WireError for one that was not asked for, or is out of turn."""
        if "preparing" in header:
            if header["preparing"] is self.preparing or self.prepared >= 2 * self.asked:
                raise WireError("it prepares what it was not asked for")
            self.preparing = header["preparing"]
            self.prepared += 1
            return
        if self.answered == self.asked:
            raise WireError("it answers what it was not asked")
        if ("ready" in header) is not (self.answered == 0) and "error" not in header:
            raise WireError("it reports out of turn that it is ready")
        self.answered += 1
        self.output.size = 0
        self.replies.append((header, blob))

    def _end(self) -> None:
        self.ended, self.ended_at = True, time.monotonic()

    def write(self) -> None:
        """Send what can be sent without waiting."""
        try:
            while self.out:
                del self.out[: self.sock.send(memoryview(self.out)[:_CHUNK].tobytes())]
        except BlockingIOError:
            pass
        except OSError:  # its end is noticed by reading
            self.out.clear()

    def close(self) -> None:
        """Let go of everything."""
        self.sock.close()
        self.output.close()
        if isinstance(self.recorder, int):
            _close(self.recorder)


def open_link(rank: int) -> tuple[Link, tuple[int, int, int]]:
    """Open a link; return it with the rank's descriptors: connection, output, recorder.

    OSError leaves none open.
    """
    with contextlib.ExitStack() as undo:
        ours, theirs = map(undo.enter_context, socket.socketpair())
        ours.setblocking(False)
        output, write = output_pipe()
        undo.callback(_close, output.fd, write)
        page = flight_recorder.create()
        undo.pop_all()
    return Link(rank, ours, output, page), (theirs.detach(), write, page)


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)
