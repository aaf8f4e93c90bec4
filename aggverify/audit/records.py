"""What a rank appends to its file: records that are each whole, or not there.

A record is a header of plain JSON and the bytes of its arrays, with their length and a checksum
before them, written by one call: what a killed process leaves behind is read up to there.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aggverify.errors import InputError

Array = npt.NDArray[Any]
MAGIC, SUFFIX = b"\x89agvr1\n", ".agvr"
_FRAME = struct.Struct("<QII")
"""Bytes of header and arrays together, bytes of the header, checksum of both."""
AMPLIFIED = 64
"""How much a rounding of a logit's gradient may grow in a weight that is read off it, at most."""
_DTYPES = ("float64", "float32", "uint8", "int64")


@dataclass(frozen=True, slots=True)
class Record:
    """What one backward pass left of one probe, or what else a rank reports."""

    head: Mapping[str, Any]
    arrays: Mapping[str, Array] = field(default_factory=dict)

    def packed(self) -> bytes:
        """Return the record with its frame."""
        kept = {name: np.ascontiguousarray(a) for name, a in self.arrays.items()}
        described = [[name, str(a.dtype), list(a.shape)] for name, a in kept.items()]
        head = json.dumps({**self.head, "arrays": described}).encode()
        body = b"".join([head, *(a.tobytes() for a in kept.values())])
        return _FRAME.pack(len(body), len(head), zlib.crc32(body)) + body


@dataclass(frozen=True, slots=True)
class RankFile:
    """One rank's records, in the order of its backward passes."""

    path: Path
    records: tuple[Record, ...]
    cut: bool
    """Whether it ends within a record, as of a process that was killed."""


def read_folder(folder: Path) -> tuple[RankFile, ...]:
    """Every rank's file; raises InputError where there is none, or what is read is no record."""
    if not folder.is_dir():
        raise InputError(f"no such folder: {folder}")
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    if not paths:
        raise InputError(
            f"{folder} holds no records (*{SUFFIX}): run the job with AGGVERIFY_PROBE={folder} and "
            f"aggverify.probe in its loss, or with aggverify audit --at NAME"
        )
    return tuple(map(read_file, paths))


def read_file(path: Path) -> RankFile:
    """One rank's; raises InputError for a file that is none, or was changed."""
    data = path.read_bytes()
    if not data.startswith(MAGIC):
        raise InputError(f"{path} is no file of records: it begins with {data[:8]!r}")
    found: list[Record] = []
    at = len(MAGIC)
    while len(data) - at >= _FRAME.size:
        size, head, checksum = _FRAME.unpack_from(data, at)
        body = data[at + _FRAME.size : at + _FRAME.size + size]
        if len(body) < size:
            break
        if zlib.crc32(body) != checksum or head > size:
            raise InputError(f"{path}: record {len(found)} is damaged (its checksum is wrong)")
        found.append(_record(path, body[:head], body[head:]))
        at += _FRAME.size + size
    return RankFile(path, tuple(found), at != len(data))


def _record(path: Path, head: bytes, data: bytes) -> Record:
    try:
        values = json.loads(head)
        arrays = dict(_arrays(values.pop("arrays"), data))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not a record: {head!r:.200} ({error!r:.200})") from None
    return Record(values, arrays)


def _arrays(described: Any, data: bytes) -> Iterator[tuple[str, Array]]:
    at = 0
    for name, dtype, shape in described:
        if dtype not in _DTYPES or min(shape, default=0) < 0:
            raise ValueError(f"array {name!r} of {dtype!r}, shape {shape!r}")
        count = int(np.prod(shape, dtype=object))
        yield str(name), np.frombuffer(data, dtype, count, at).reshape(shape)
        at += count * np.dtype(dtype).itemsize
    if at != len(data):
        raise ValueError(f"{len(data)} bytes of arrays, {at} of them used")
