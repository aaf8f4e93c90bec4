"""Acts that reach for what is not theirs: the connection to the parent, the flight recorder."""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .base import Play, act


def _connections() -> Iterator[socket.socket]:
    for entry in list(Path("/proc/self/fd").iterdir()):
        try:
            if stat.S_ISSOCK(entry.stat().st_mode):
                found = socket.socket(fileno=os.dup(int(entry.name)))
                if found.family == socket.AF_UNIX:
                    yield found
        except OSError:
            continue


@act
def say(play: Any, job: dict[str, Any]) -> None:
    """These bytes, so many times, on every connection there is; then maybe sleep for good."""
    for connection in _connections():
        try:
            connection.sendall(bytes.fromhex(job["bytes"]) * job.get("times", 1))
        except OSError:  # nobody listens any more
            continue
    if job.get("sleeps"):
        time.sleep(3600)


@act
def trickle(play: Play, job: dict[str, Any]) -> None:
    """The beginning of a large answer, a byte at a time, for as long as somebody reads it."""

    def drop(connection: socket.socket) -> None:
        connection.sendall((100).to_bytes(4, "little") + (1 << 20).to_bytes(4, "little"))
        while True:
            connection.sendall(b" ")
            time.sleep(0.01)

    for connection in _connections():
        threading.Thread(target=drop, args=[connection], daemon=True).start()
    time.sleep(3600)


@act
def cut_the_slate(play: Play, job: dict[str, Any]) -> None:
    for entry in list(Path("/proc/self/fd").iterdir()):
        if "memfd:flight_recorder" in str(entry.readlink() if entry.is_symlink() else ""):
            os.ftruncate(int(entry.name), job["size"])
    os._exit(3)  # what has mapped it would end by a signal
