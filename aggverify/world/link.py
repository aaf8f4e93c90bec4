"""The parent's end of one rank: connection, captured output, slate."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque
from dataclasses import dataclass, field

from aggverify.world import slate
from aggverify.world.wire import Decoder, Frame, WireError

_CHUNK = 1 << 18
_TAIL = 8_000
MUCH = 1 << 14
"""Output at a time that may have filled the pipe: its writer then waited for us to read it."""


@dataclass(slots=True)
class Output:
    """The reading end of a pipe of which only the tail is kept, whatever was written."""

    fd: int
    tail: bytes = b""

    def read(self) -> int:
        """Take what is there; how many bytes that was, 0 at the end."""
        data = os.read(self.fd, _CHUNK)
        self.tail = (self.tail + data)[-_TAIL:]
        return len(data)

    def drain(self) -> str:
        """Everything that can be read now; the tail as text."""
        with contextlib.suppress(BlockingIOError):
            while self.read():
                pass
        return self.tail.decode(errors="replace")


def output_pipe() -> tuple[Output, int]:
    """The parent's reading end, and the descriptor to hand to a child."""
    read, write = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read, False)
    return Output(read), write


@dataclass(slots=True)
class Link:
    """One rank as the parent sees it."""

    rank: int
    sock: socket.socket
    output: Output
    slate: int
    pid: int | None = None
    replies: deque[Frame] = field(default_factory=deque)
    out: bytearray = field(default_factory=bytearray)
    decoder: Decoder = field(default_factory=Decoder)
    ended: bool = False
    ended_at: float = 0.0
    exit_status: int | None = None
    garbage: str | None = None
    refused: str = ""
    """Why no process was started for it."""
    preparing: bool = False
    """Whether it is the handler's own work that it does before a job, rather than the job."""

    def read(self) -> bool:
        """Take what has arrived; True if something has."""
        try:
            data = self.sock.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # reset by a peer that died
            data = b""
        if not data:
            self._end()
            return False
        try:
            for header, blob in self.decoder.feed(data):
                if "preparing" in header:
                    self.preparing = header["preparing"]
                else:
                    self.replies.append((header, blob))
        except WireError as error:
            self._end()
            self.garbage = f"sent what is no answer: {error}"
        return True

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
        _close(self.output.fd, self.slate)


def open_link(rank: int) -> tuple[Link, tuple[int, int, int]]:
    """A new link, and the rank's descriptors: connection, output, slate. OSError leaves none."""
    with contextlib.ExitStack() as undo:
        ours, theirs = map(undo.enter_context, socket.socketpair())
        ours.setblocking(False)
        output, write = output_pipe()
        undo.callback(_close, output.fd, write)
        page = slate.create()
        undo.pop_all()
    return Link(rank, ours, output, page), (theirs.detach(), write, page)


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)
