"""Frames: whatever way the bytes come, the same frames come out; what is none is refused."""

from __future__ import annotations

import os
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggverify.world import wire

HEADERS = st.dictionaries(
    st.text(max_size=5), st.none() | st.integers() | st.text(max_size=9) | st.booleans(), max_size=3
)
FRAMES = st.lists(st.tuples(HEADERS, st.binary(max_size=40)), max_size=5)


@given(FRAMES, st.lists(st.integers(1, 30), min_size=1))
def test_frames_survive_any_cutting(frames: list[wire.Frame], cuts: list[int]) -> None:
    data = b"".join(wire.encode(header, blob) for header, blob in frames)
    decoder, out, at, n = wire.Decoder(), [], 0, 0
    while at < len(data):
        size = cuts[n % len(cuts)]
        out += list(decoder.feed(data[at : at + size]))
        at, n = at + size, n + 1
    assert out == frames


@given(FRAMES)
def test_sockets_carry_frames(frames: list[wire.Frame]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for header, _ in frames:
            wire.send(ours, header)
        ours.close()
        received = []
        while (message := wire.receive(theirs)) is not None:
            received.append(message[0])
    assert received == [header for header, _ in frames]


def test_open_files_travel_and_do_not_pass_to_programs_started() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        memory = os.memfd_create("test")
        os.write(memory, b"content")
        wire.send(ours, {"name": "x" * 100_000}, fds=[memory])
        message = wire.receive(theirs)
        assert message is not None
        header, (fd,) = message
        assert header == {"name": "x" * 100_000}
        assert os.pread(fd, 99, 0) == b"content"
        assert not os.get_inheritable(fd)
        os.close(fd)
        os.close(memory)


@given(st.binary(max_size=100))
def test_bytes_of_any_kind_give_frames_or_an_error(data: bytes) -> None:
    try:
        for header, _ in wire.Decoder().feed(data):
            assert isinstance(header, dict)
    except wire.WireError:
        pass


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<II", 1 << 30, 1),
        struct.pack("<II", 2, 0) + b"[]",
        struct.pack("<II", 2, 0) + b"{x",
        struct.pack("<II", 1, 0) + b"\xff",
        struct.pack("<II", 200_000, 0) + b"[" * 200_000,
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        list(wire.Decoder().feed(data))


def test_a_stream_that_ends_early_is_refused() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(wire.encode({"a": 1})[:-1])
        ours.close()
        with pytest.raises(wire.WireError, match="1 bytes short"):
            wire.receive(theirs)


def test_a_frame_beyond_the_limit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_FRAME", 10)
    with pytest.raises(ValueError, match="at most 10"):
        wire.encode({}, b"x" * 9)
