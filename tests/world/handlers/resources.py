"""Acts on memory, streams, processes and threads."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

from .base import Play, act


@act
def initialise_cuda(play: Play, job: dict[str, Any]) -> None:
    # As it looks from outside; there need be no device.
    torch.cuda.is_initialized = lambda: True


@act
def hog_memory(play: Play, job: dict[str, Any]) -> None:
    held = []
    while True:
        held.append(torch.empty(1 << 26))


@act
def hog_python_memory(play: Play, job: dict[str, Any]) -> None:
    held = []
    while True:
        held.append(bytes(1 << 28))


@act
def hog_the_last_of_memory(play: Play, job: dict[str, Any]) -> None:
    held, size = [], 1 << 28
    while size:
        try:
            held.append(bytes(size))
        except MemoryError:
            size >>= 1
    raise MemoryError


@act
def close_streams(play: Play, job: dict[str, Any]) -> None:
    sys.stdout.close()
    for fd in range(3):
        os.close(fd)


@act
def close_stream_objects(play: Play, job: dict[str, Any]) -> None:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()


@act
def close_everything(play: Play, job: dict[str, Any]) -> None:
    os.closerange(3, 4096)
    signal.pause()


@act
def capture_streams(play: Play, job: dict[str, Any]) -> None:
    import io

    sys.stdout = io.StringIO()


@act
def read_stdin(play: Play, job: dict[str, Any]) -> dict[str, Any]:
    return {"read": sys.stdin.read()}


@act
def chatter(play: Play, job: dict[str, Any]) -> None:
    os.write(1, b"\xff\x00binary\n" * 700_000)
    print("the last words of stdout")
    print("the last words of stderr", file=sys.stderr)
    if job.get("die"):
        os._exit(9)


@act
def print_without_end(play: Play, job: dict[str, Any]) -> None:
    while True:
        os.write(1, b"y" * 65535 + b"\n")


@act
def print_and_sleep(play: Play, job: dict[str, Any]) -> None:
    while True:
        os.write(1, b"y" * 20_000)
        time.sleep(0.01)


@act
def large_reply(play: Play, job: dict[str, Any]) -> dict[str, Any]:
    return {"text": "x" * job["size"]}


@act
def fork_and_return(play: Play, job: dict[str, Any]) -> dict[str, Any]:
    return {"child": os.fork()}


@act
def fork_unseen(play: Play, job: dict[str, Any]) -> dict[str, Any]:
    """Past the interpreter, which has no part in it."""
    return {"child": ctypes.CDLL(None).fork()}


@act
def fork_without_end(play: Play, job: dict[str, Any]) -> None:
    while True:
        os.fork()


@act
def hold_without_end(play: Play, job: dict[str, Any]) -> None:
    """A few processes, none of which holds more than a rank may."""
    for _ in range(20):
        if os.fork() == 0:
            held = b"x" * (300 << 20)
            time.sleep(600 + len(held[:1]))
    time.sleep(600)


@act
def write_to_memory_without_end(play: Play, job: dict[str, Any]) -> None:
    """Into files in memory that no process has mapped, so that they are none's own."""
    for _ in range(20):
        os.write(os.memfd_create("held"), b"x" * (300 << 20))
    time.sleep(600)


@act
def thread_without_end(play: Play, job: dict[str, Any]) -> None:
    """In several processes: the memory of one has room for a hundred stacks or two. They begin once
    all of them are there: what they take is no more to be had for a fork."""
    all_there, say_so = os.pipe()
    for _ in range(20):
        if os.fork() == 0:
            os.close(say_so)
            os.read(all_there, 1)
            with contextlib.suppress(RuntimeError, MemoryError):
                while True:
                    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
            time.sleep(600)
    os.close(say_so)
    time.sleep(600)


_WAYS = multiprocessing.get_context("fork")
_POOLS: list[Any] = []


def _twice(number: int) -> int:
    return 2 * number


def _tell(results: Any) -> None:
    results.put(_twice(3))


@act
def ask_a_pool(play: Play, job: dict[str, Any]) -> None:
    if not _POOLS:
        _POOLS.append(_WAYS.Pool(2))
    assert _POOLS[0].map(_twice, [1, 2, 3]) == [2, 4, 6]


@act
def ask_a_process(play: Play, job: dict[str, Any]) -> None:
    results = _WAYS.SimpleQueue()
    process = _WAYS.Process(target=_tell, args=(results,))
    process.start()
    assert results.get() == 6
    process.join()
    assert process.exitcode == 0


@act
def ask_a_program(play: Play, job: dict[str, Any]) -> None:
    assert subprocess.run(["true"], check=False).returncode == 0


@act
def leave_daemon(play: Play, job: dict[str, Any]) -> dict[str, Any]:
    daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)
    return {"daemon": daemon.pid}


@act
def leave_thread(play: Play, job: dict[str, Any]) -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


@act
def leave_thread_and_mark(play: Play, job: dict[str, Any]) -> None:
    with Path(job["marks"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    leave_thread(play, job)


@act
def edit_input(play: Play, job: dict[str, Any]) -> None:
    job.clear()


@act
def listening(play: Play, job: dict[str, Any]) -> dict[str, Any]:
    """Local addresses of this process's listening TCP sockets, hexadecimal."""
    inodes = set()
    for entry in Path("/proc/self/fd").iterdir():
        link = str(entry.readlink()) if entry.is_symlink() else ""
        if link.startswith("socket:["):
            inodes.add(link[8:-1])
    addresses = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                addresses.append(fields[1].split(":")[0])
    return {"addresses": addresses}
