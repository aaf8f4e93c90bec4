"""Handlers for the pool's tests; imported in template and rank processes only."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

Answer = tuple[dict[str, Any], bytes]


class Echo:
    """Answers with its place, the sum over the ranks, and the job."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.setup = setup
        self.rank = 0

    def describe(self) -> dict[str, Any]:
        return {"setup": self.setup, "threads": threading.active_count()}

    def start(self, rank: int, world_size: int) -> None:
        self.rank = rank

    def __call__(self, job: dict[str, Any]) -> Answer:
        total = reduced(float(self.rank + 1))
        data = {"rank": self.rank, "size": dist.get_world_size(), "sum": total, "job": job}
        return data, bytes([self.rank])


def reduced(value: float, **options: Any) -> float:
    total = torch.tensor([value])
    dist.all_reduce(total, **options)
    return total.item()


class Play(Echo):
    """Does what the job names, on the ranks it names (``on``: all when absent), then reduces."""

    def __call__(self, job: dict[str, Any]) -> Answer:
        extra: dict[str, Any] = {}
        if self.rank in job.get("on", range(dist.get_world_size())):
            extra = ACTS[job["act"]](self, job) or {}
        return {"sum": reduced(1.0), "pid": os.getpid(), **extra}, b""


Act = Callable[[Play, dict[str, Any]], dict[str, Any] | None]
ACTS: dict[str, Act] = {}


def act(function: Act) -> Act:
    ACTS[function.__name__] = function
    return function


@act
def nothing(play: Play, job: dict[str, Any]) -> None:
    pass


@act
def raise_error(play: Play, job: dict[str, Any]) -> None:
    raise ValueError(f"bad value {job['value']}")


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
def wait_for_child(play: Play, job: dict[str, Any]) -> None:
    # Busy for a while, though no thread of the rank itself is.
    code = "import time\nt = time.process_time() + 0.4\nwhile time.process_time() < t: pass"
    subprocess.run([sys.executable, "-c", code], check=True)


@act
def stop_self(play: Play, job: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@act
def extra(play: Play, job: dict[str, Any]) -> None:
    dist.all_reduce(torch.ones(1))


@act
def extra_async(play: Play, job: dict[str, Any]) -> None:
    play.work = dist.all_reduce(torch.ones(1), async_op=True)  # type: ignore[attr-defined]


@act
def wait_async(play: Play, job: dict[str, Any]) -> None:
    work = dist.all_reduce(torch.ones(3), async_op=True)
    assert work is not None
    work.wait()


@act
def skip(play: Play, job: dict[str, Any]) -> None:
    raise SkipError


class SkipError(Exception):
    """Makes ``Skipper`` answer without its collective."""


class Skipper(Play):
    """Like Play, but the act ``skip`` leaves out the reduction."""

    def __call__(self, job: dict[str, Any]) -> Answer:
        try:
            return super().__call__(job)
        except SkipError:
            return {"sum": 0.0}, b""


def _other(play: Play, job: dict[str, Any], mine: Callable[[], Any], others: Any) -> None:
    (mine if play.rank == job["odd"] else others)()


@act
def other_length(play: Play, job: dict[str, Any]) -> None:
    small, large = job["lengths"]
    _other(
        play, job, lambda: dist.all_reduce(torch.ones(small)),
        lambda: dist.all_reduce(torch.ones(large)),
    )  # fmt: skip


@act
def other_dtype(play: Play, job: dict[str, Any]) -> None:
    _other(
        play, job, lambda: dist.all_reduce(torch.ones(4, dtype=torch.int32)),
        lambda: dist.all_reduce(torch.ones(4)),
    )  # fmt: skip


@act
def other_op(play: Play, job: dict[str, Any]) -> None:
    _other(
        play, job, lambda: dist.all_reduce(torch.ones(4), op=dist.ReduceOp.MAX),
        lambda: dist.all_reduce(torch.ones(4)),
    )  # fmt: skip


@act
def other_order(play: Play, job: dict[str, Any]) -> None:
    def one() -> None:
        dist.all_reduce(torch.ones(4))
        dist.broadcast(torch.ones(2), src=0)

    def two() -> None:
        dist.broadcast(torch.ones(2), src=0)
        dist.all_reduce(torch.ones(4))

    _other(play, job, one, two)


@act
def other_group(play: Play, job: dict[str, Any]) -> None:
    pair = dist.new_group([0, 1])
    _other(
        play, job, lambda: dist.all_reduce(torch.ones(1), group=pair),
        lambda: dist.all_reduce(torch.ones(1)),
    )  # fmt: skip


@act
def alone_new_group(play: Play, job: dict[str, Any]) -> None:
    dist.new_group([0, 1])


@act
def sub_groups(play: Play, job: dict[str, Any]) -> dict[str, Any]:
    # Ranks of different groups legitimately issue different collectives.
    group, _ = dist.new_subgroups_by_enumeration([[0, 1], [2, 3]])
    for _ in range(1 + play.rank // 2):
        dist.all_reduce(torch.ones(1), group=group)
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, play.rank, group=group)
    return {"objects": objects}


@act
def many_groups(play: Play, job: dict[str, Any]) -> None:
    for _ in range(job["groups"]):
        dist.all_reduce(torch.ones(1), group=dist.new_group([0, 1]))


@act
def many_collectives(play: Play, job: dict[str, Any]) -> None:
    for i in range(300):
        odd = play.rank == job.get("odd") and i == 250
        dist.all_reduce(torch.ones(2 if odd else 1))


@act
def unwrapped(play: Play, job: dict[str, Any]) -> None:
    # Around torch.distributed's functions: only the backend's own count sees it.
    world: Any = dist.group.WORLD
    play.work = world.allreduce([torch.ones(1)])  # type: ignore[attr-defined]


@act
def destroy_group(play: Play, job: dict[str, Any]) -> None:
    dist.destroy_process_group()


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
def large_reply(play: Play, job: dict[str, Any]) -> dict[str, Any]:
    return {"text": "x" * job["size"]}


@act
def fork_and_return(play: Play, job: dict[str, Any]) -> dict[str, Any]:
    return {"child": os.fork()}


@act
def leave_daemon(play: Play, job: dict[str, Any]) -> dict[str, Any]:
    daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)
    return {"daemon": daemon.pid}


@act
def leave_thread(play: Play, job: dict[str, Any]) -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


@act
def change_state(play: Play, job: dict[str, Any]) -> None:
    CHANGES[job["what"]]()


@act
def raise_after_change(play: Play, job: dict[str, Any]) -> None:
    CHANGES[job["what"]]()
    raise ValueError("changed")


@act
def look_at_state(play: Play, job: dict[str, Any]) -> dict[str, Any]:
    return {
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "grad": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "random": [torch.rand(1).item(), random.random()],
        "variable": os.environ.get("AGGVERIFY_TEST"),
        "cwd": str(Path.cwd()),
        "sigint": str(signal.getsignal(signal.SIGINT)),
        "affinity": os.sched_getscheduler(0) == os.SCHED_BATCH,
    }


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


def _numpy_seed() -> None:
    import numpy as np

    np.random.seed(5)


def _few_open_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))


def _drop_module() -> None:
    del sys.modules["random"]


CHANGES: dict[str, Callable[[], Any]] = {
    "torch default dtype": lambda: torch.set_default_dtype(torch.float64),
    "torch default device": lambda: torch.set_default_device("cpu"),
    "torch grad mode": lambda: torch.set_grad_enabled(False),
    "torch anomaly mode": lambda: torch.autograd.set_detect_anomaly(True),
    "torch threads": lambda: torch.set_num_threads(2),
    "torch deterministic algorithms": lambda: torch._C._set_deterministic_algorithms(True),
    "torch random state": lambda: torch.manual_seed(1),
    "numpy random state": _numpy_seed,
    "random state": lambda: random.seed(1),
    "recursion limit": lambda: sys.setrecursionlimit(5000),
    "sys.path": lambda: sys.path.append("/nowhere"),
    "sys.modules lost": _drop_module,
    "warning filters": lambda: warnings.simplefilter("ignore"),
    "environment": lambda: os.environ.update(AGGVERIFY_TEST="set"),
    "working directory": lambda: os.chdir("/"),
    "signal handlers": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    "timer": lambda: signal.alarm(600),
    "umask": lambda: os.umask(0),
    "resource limits": _few_open_files,
    "priority": lambda: os.nice(1),
    "processors": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    "subnormal numbers": lambda: torch.set_flush_denormal(True),
    "threads": lambda: threading.Thread(target=time.sleep, args=(600,), daemon=True).start(),
}


class FailsInRanks(Echo):
    """Constructed well, but does not start on rank 1."""

    def start(self, rank: int, world_size: int) -> None:
        super().start(rank, world_size)
        if rank == 1:
            raise ValueError("not on rank 1")


class FailsToStart(Echo):
    """Fails in its constructor."""

    def __init__(self, setup: dict[str, Any]) -> None:
        super().__init__(setup)
        ACTS[setup["act"]](self, setup)  # type: ignore[arg-type]


class ActsWhenMade(Play):
    """Does one thing in its constructor, and what a job names after that."""

    def __init__(self, setup: dict[str, Any]) -> None:
        super().__init__(setup)
        ACTS[setup["act"]](self, setup)


class StartsThread(Echo):
    """Leaves a thread running after the import, which a fork would lose."""

    def __init__(self, setup: dict[str, Any]) -> None:
        super().__init__(setup)
        self.beats = 0
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while True:
            self.beats += 1
            time.sleep(0.001)

    def __call__(self, job: dict[str, Any]) -> Answer:
        ends = time.process_time() + 1
        before = self.beats
        while self.beats == before and time.process_time() < ends:
            pass
        return {"alive": self.beats > before, "sum": reduced(1.0)}, b""


class Together(Skipper):
    """Takes several jobs in one dispatch, and tells how many it was given."""

    def together(self, jobs: list[dict[str, Any]], between: Callable[[], None]) -> UnderWay:
        answers: list[Answer] = []
        for job in jobs:
            data, _ = self(job)
            answers.append(({**data, "together": len(jobs)}, bytes([self.rank]) * len(answers)))
            between()
        return UnderWay(answers)


class UnderWay:
    """Answers that wait for the other ranks, as reduced gradients do, until they are asked for."""

    arrived = False

    def __init__(self, answers: list[Answer]) -> None:
        self._answers = answers
        self._work = dist.all_reduce(torch.ones(1), async_op=True)

    def answers(self) -> list[Answer]:
        self._work.wait()
        return self._answers
