"""Frames between processes: a JSON header and a binary blob, never pickle."""

from __future__ import annotations

import array
import json
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any

_PREFIX = struct.Struct("<II")
MAX_FRAME = 1 << 30
_MAX_FDS = 250
# Made once: json.dumps makes an encoder at each call, json.loads looks for other encodings.
_ENCODER, _DECODER = json.JSONEncoder(separators=(",", ":")), json.JSONDecoder()

Frame = tuple[dict[str, Any], bytes]


class WireError(Exception):
    """Bytes that are no frame: the other side is broken or was tampered with."""


def encode(header: Any, blob: bytes = b"") -> bytes:
    """Encode one frame; raises TypeError or ValueError when the header is not JSON-able."""
    return frame(text(header), blob)


def text(header: Any) -> bytes:
    """JSON without spaces."""
    return _ENCODER.encode(header).encode()


def frame(text: bytes, blob: bytes = b"") -> bytes:
    """Encode one frame whose header is JSON text already; raises ValueError if too long."""
    check_size(len(text) + len(blob))
    return _PREFIX.pack(len(text), len(blob)) + text + blob


def check_size(size: int) -> None:
    """Raise ValueError for a frame that would be too long."""
    if size > MAX_FRAME:
        raise ValueError(f"frame of {size} bytes; at most {MAX_FRAME} can be sent")


class Decoder:
    """Collects bytes as they come and yields the frames that are complete."""

    __slots__ = ("_data", "_start", "most")

    def __init__(self, most: int = MAX_FRAME) -> None:
        self.most = most
        """Bytes of a frame that are waited for; a longer one is none."""
        self._data = bytearray()
        self._start = 0

    @property
    def under_way(self) -> bool:
        """Whether a frame has begun that is not complete."""
        return bool(self._data)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add bytes; yield every frame they complete."""
        self._data += data
        while (frame := self._next()) is not None:
            yield frame
        # One move per feed, not per frame: a batch of small frames stays linear.
        del self._data[: self._start]
        self._start = 0

    def _next(self) -> Frame | None:
        data, at = self._data, self._start
        if len(data) - at < _PREFIX.size:
            return None
        header_size, blob_size = _PREFIX.unpack_from(data, at)
        _check_sizes(header_size, blob_size, self.most)
        middle = at + _PREFIX.size + header_size
        end = middle + blob_size
        if len(data) < end:
            return None
        self._start = end
        return _header(bytes(data[at + _PREFIX.size : middle])), bytes(data[middle:end])


def _check_sizes(header_size: int, blob_size: int, most: int = MAX_FRAME) -> None:
    if header_size + blob_size > most:
        raise WireError(f"a frame announces {header_size + blob_size} bytes, limit {most}")


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = _DECODER.decode(text.decode())
    except (ValueError, RecursionError) as error:
        raise WireError(f"header is not JSON: {text[:80]!r}") from error
    if not isinstance(header, dict):
        raise WireError(f"header is not an object: {text[:80]!r}")
    return header


def send(sock: socket.socket, header: Any, blob: bytes = b"", fds: Sequence[int] = ()) -> None:
    """Send one frame on a blocking socket, with open files attached."""
    data = encode(header, blob)
    if fds:
        sent = socket.send_fds(sock, [data[: _PREFIX.size]], fds)
        data = data[sent:]
    sock.sendall(data)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Receive one frame and its open files on a blocking socket; None at the end of stream."""
    prefix, fds = _with_files(sock, _PREFIX.size)
    if not prefix:
        return None
    prefix += _exactly(sock, _PREFIX.size - len(prefix))
    header_size, blob_size = _PREFIX.unpack(prefix)
    _check_sizes(header_size, blob_size)
    body = _exactly(sock, header_size + blob_size)
    return _header(body[:header_size]), fds


def _with_files(sock: socket.socket, size: int) -> tuple[bytes, list[int]]:
    # socket.recv_fds ignores its flags (CPython 3.11), and files must not pass to programs that
    # the code under test starts.
    room = socket.CMSG_LEN(_MAX_FDS * array.array("i").itemsize)
    data, ancillary, _, _ = sock.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, list(fds)


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        data = sock.recv(min(size - len(parts), 1 << 20))
        if not data:
            raise WireError(f"stream ended {size - len(parts)} bytes short")
        parts += data
    return bytes(parts)
