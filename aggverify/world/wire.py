"""Frames over Unix sockets: a JSON header, a binary blob, and file descriptors. No pickle."""

from __future__ import annotations

import array
import json
import socket
import struct
from typing import Any

_PREFIX = struct.Struct("!II")
MAX_FDS = 64


class Closed(Exception):
    """The other end is gone."""


def send(
    sock: socket.socket, header: dict[str, Any], blob: bytes = b"", fds: list[int] | None = None
) -> None:
    """Send one frame; raises Closed when the other end is gone."""
    text = json.dumps(header).encode()
    data = _PREFIX.pack(len(text), len(blob)) + text + blob
    try:
        if fds:
            # Descriptors travel with the first byte; the rest follows as plain data.
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            sent = sock.sendmsg([data], ancillary)
            data = data[sent:]
        sock.sendall(data)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Closed from error


def receive(sock: socket.socket) -> tuple[dict[str, Any], bytes, list[int]]:
    """Receive one frame (blocking): header, blob, descriptors; raises Closed at end of file."""
    fds = array.array("i")
    size = MAX_FDS * fds.itemsize
    try:
        first, ancillary, _, _ = sock.recvmsg(_PREFIX.size, socket.CMSG_SPACE(size))
    except ConnectionResetError as error:
        raise Closed from error
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    prefix = first + _exactly(sock, _PREFIX.size - len(first)) if first else b""
    if not prefix:
        raise Closed
    header_size, blob_size = _PREFIX.unpack(prefix)
    text = _exactly(sock, header_size)
    return json.loads(text), _exactly(sock, blob_size), list(fds)


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = sock.recv(min(size - len(parts), 1 << 20))
        except ConnectionResetError as error:
            raise Closed from error
        if not part:
            raise Closed
        parts += part
    return bytes(parts)


class Inbox:
    """Frames out of a non-blocking socket, as they become complete."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data = bytearray()

    def read(self) -> list[tuple[dict[str, Any], bytes]]:
        """Every frame that is complete by now; raises Closed at end of file."""
        try:
            part = self._sock.recv(1 << 18)
        except BlockingIOError:
            return []
        except ConnectionResetError as error:
            raise Closed from error
        if not part:
            raise Closed
        self._data += part
        return self._complete()

    def _complete(self) -> list[tuple[dict[str, Any], bytes]]:
        frames, start = [], 0
        while len(self._data) - start >= _PREFIX.size:
            header_size, blob_size = _PREFIX.unpack_from(self._data, start)
            middle = start + _PREFIX.size + header_size
            if len(self._data) < middle + blob_size:
                break
            header = json.loads(self._data[start + _PREFIX.size : middle])
            frames.append((header, bytes(self._data[middle : middle + blob_size])))
            start = middle + blob_size
        del self._data[:start]
        return frames
