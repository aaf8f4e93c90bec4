"""Acts that raise, die, run away, or take their time."""

from __future__ import annotations

import ctypes
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
def nothing(play: Play, job: dict[str, Any]) -> None:
    pass


@act
def raise_error(play: Play, job: dict[str, Any]) -> None:
    raise ValueError(f"bad value {job['value']}")


@act
def ask_for_more(play: Play, job: dict[str, Any]) -> None:
    raise OSError(job["errno"], os.strerror(job["errno"]))


@act
def raise_own(play: Play, job: dict[str, Any]) -> None:
    raise ValueError("even") if play.rank % 2 == 0 else KeyError("odd")


@act
def raise_unprintable(play: Play, job: dict[str, Any]) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    raise Mute


@act
def raise_huge(play: Play, job: dict[str, Any]) -> None:
    raise ValueError("x\udcff" * 10_000_000)


@act
def unserialisable(play: Play, job: dict[str, Any]) -> dict[str, Any]:
    return {"object": threading.Lock()}


@act
def leave_by_sys_exit(play: Play, job: dict[str, Any]) -> None:
    sys.exit(3)


@act
def leave(play: Play, job: dict[str, Any]) -> None:
    os._exit(job["status"])


@act
def kill_self(play: Play, job: dict[str, Any]) -> None:
    os.kill(os.getpid(), job["signal"])
    signal.pause()


@act
def kill_parent(play: Play, job: dict[str, Any]) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()


@act
def segfault(play: Play, job: dict[str, Any]) -> None:
    ctypes.string_at(8)


@act
def overflow_the_stack(play: Play, job: dict[str, Any]) -> None:
    sys.setrecursionlimit(10**9)
    nested: list[Any] = []
    for _ in range(10**6):
        nested = [nested]
    # Recursion in C, without a check of depth.
    ctypes.pythonapi.PyObject_Repr.restype = ctypes.py_object

    def down() -> None:
        sorted([1], key=lambda _: down())

    down()


@act
def loop(play: Play, job: dict[str, Any]) -> None:
    while True:
        pass


@act
def loop_in_c(play: Play, job: dict[str, Any]) -> None:
    # Holds the GIL all the while.
    sum(range(10**13))


@act
def loop_without_gil(play: Play, job: dict[str, Any]) -> None:
    a = torch.ones(1500, 1500)
    while True:
        a @ a


@act
def sleep(play: Play, job: dict[str, Any]) -> None:
    time.sleep(job["seconds"])


@act
def poll(play: Play, job: dict[str, Any]) -> None:
    while True:
        time.sleep(0.002)


@act
def poll_and_print(play: Play, job: dict[str, Any]) -> None:
    while True:
        print("still waiting")
        time.sleep(0.002)


@act
def compute(play: Play, job: dict[str, Any]) -> None:
    ends = time.process_time() + job["seconds"]
    while time.process_time() < ends:
        pass


@act
def compute_until(play: Play, job: dict[str, Any]) -> None:
    while not Path(job["there"]).exists():
        pass


@act
def wait_for_child(play: Play, job: dict[str, Any]) -> None:
    # Busy for a while, though no thread of the rank itself is.
    code = "import time\nt = time.process_time() + 0.4\nwhile time.process_time() < t: pass"
    subprocess.run([sys.executable, "-c", code], check=True)


@act
def stop_self(play: Play, job: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
