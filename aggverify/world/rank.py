"""One rank: joins its world, then calls the handler for every job frame it is sent."""

from __future__ import annotations

import datetime
import faulthandler
import importlib
import os
import random
import resource
import select
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aggverify.world import forking, interpreter, linux, rendezvous
from aggverify.world.backends import Backend, RankPlace
from aggverify.world.candidate_errors import raised
from aggverify.world.devices import DEVICES, Device
from aggverify.world.flight_recorder import Writer
from aggverify.world.stacks import STACK_SIGNAL
from aggverify.world.state import Guard
from aggverify.world.trace import KEPT, TRACER, sequences
from aggverify.world.wire import Decoder, Frame, encode

# ``handler(job)`` returns data and bytes. One that takes jobs together has ``together(jobs,
# between)``, calls ``between`` after each, and returns an object with ``arrived`` and
# ``answers()``: the list of the same, which it may have to wait for until ``arrived``. One with
# first-use costs of its own has ``preparation(jobs)``: what to do before these jobs, or None. It
# is the handler's, not the job's: processor time, collectives and global state do not count.
Handler = Any


@dataclass(frozen=True, slots=True)
class Handed:
    """What a rank was handed: open files by number, and bytes of memory beyond its start."""

    connection: int
    output: int
    recorder: int
    store: int
    memory: int
    rendezvous: Sequence[Any] | None = None
    """Where the others are met instead of in the store, as of a ``Rendezvous``."""


def construct(request: dict[str, Any]) -> Any:
    """Construct the handler named ``module:Class`` with the setup."""
    module, _, name = request["handler"].partition(":")
    with interpreter.uncollected():
        handlers = importlib.import_module(module)
    return getattr(handlers, name)(request["setup"])


def live(
    place: RankPlace, backend: Backend, handed: Handed, make_handler: Callable[[], Any]
) -> None:
    """Be a rank until the connection ends."""
    connection, me = socket.socket(fileno=handed.connection), os.getpid()
    try:
        # "Own": a failure before the code under test is imported is no fault of that code.
        page, device = Writer(handed.recorder), DEVICES[backend.device]
        page.own(begins=True)
        place = _settle(place, backend, device, handed)
        page.own(begins=False)
        handler = make_handler()
        if os.getpid() != me:
            return  # a process that the import has forked, and that came back here
        page.own(begins=True)
        _join(place, handed, device.joining(place, backend))
        handler.start(place)
        TRACER.recorder = page
        guard = Guard(device.aspects)
    except BaseException as error:
        if os.getpid() == me:
            connection.sendall(encode({"error": raised(error).to_json()}))
        return
    connection.sendall(encode({"ready": os.getpid()}))
    _Loop(connection, handler, guard).run()


def _settle(place: RankPlace, backend: Backend, device: Device, handed: Handed) -> RankPlace:
    """Set up this process: its device, output, limits, scheduling, stack dumps, random numbers."""
    for fd in (1, 2):
        os.dup2(handed.output, fd)
    # Written at once, so that what was printed is there when the rank is killed.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    linux.run_as_batch()
    dump_stacks_to(handed.recorder)
    place = device.settle(place, backend, handed.memory)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, value in (("RANK", place.rank), ("WORLD_SIZE", place.size)):
        os.environ[name] = os.environ[f"LOCAL_{name}"] = str(value)
    seed_generators()
    device.seed()
    return place


def seed_generators() -> None:
    """Seed the same random numbers everywhere.

    Done in the template too: what it imports is shared.
    """
    random.seed(0)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(0)
    import torch

    # The processor's alone: torch.manual_seed would reach for the devices as well.
    torch.default_generator.manual_seed(0)


def dump_stacks_to(recorder: int) -> None:
    """Write Python stacks there on a crash, and on ``STACK_SIGNAL``."""
    faulthandler.enable(recorder)
    faulthandler.register(STACK_SIGNAL, recorder, all_threads=True)


def _join(place: RankPlace, handed: Handed, how: dict[str, Any]) -> None:
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore

    if handed.rendezvous is not None:
        store = rendezvous.Rendezvous(*handed.rendezvous).joined()
    else:
        # A file in memory, reached by descriptor: no port, no path, nothing to clean up.
        store = FileStore(f"/proc/self/fd/{handed.store}", place.size)
    # The parent ends ranks that are blocked, so the backend's own timeout must not come first.
    dist.init_process_group(
        store=store,
        rank=place.rank,
        world_size=place.size,
        timeout=datetime.timedelta(days=1),
        **how,
    )


class _Loop:
    """Reads jobs, calls the handler, answers each, in order.

    While jobs that were run together wait for the other ranks, the next are begun already.
    """

    def __init__(self, connection: socket.socket, handler: Handler, guard: Guard) -> None:
        self._connection = connection
        self._handler = handler
        self._guard = guard
        self._decoder = Decoder()
        self._frames: deque[Frame] = deque()
        self._begun = 0
        self._counted: dict[str, list[int]] = {}
        self._over = 0
        # Jobs that wait for the other ranks, and the evidence gathered when their calls returned.
        self._waiting: tuple[Any, dict[str, Any]] | None = None
        self._pid = os.getpid()
        self._spoiled = False
        self._preparation = getattr(handler, "preparation", lambda jobs: None)

    def run(self) -> None:
        """Answer jobs until the end of stream."""
        while (frame := self._next()) is not None:
            failed = self._run(frame[0])
            if os.getpid() != self._pid:
                return  # a process the candidate forked came back here instead of ending
            forking.reap()
            if self._spoiled:
                self._rest()
                return
            # After an exception the others may wait in a collective of this job. Going on would
            # answer their call with the next job's.
            if failed and not self._released():
                return

    def _rest(self) -> None:
        """Run nothing more until it is replaced: each job would add to the state left changed."""
        self._finish()
        while self._connection.recv(1 << 18):
            pass

    def _next(self) -> Frame | None:
        if not self._frames and self._waiting is not None:
            readable, _, _ = select.select([self._connection], [], [], 0)
            if not readable:
                self._finish()
        while not self._frames:
            if not self._read():
                return None
        return self._frames.popleft()

    def _released(self) -> bool:
        while not any("go" in header for header, _ in self._frames):
            if not self._read():
                return False
        self._frames = deque(f for f in self._frames if "go" not in f[0])
        return True

    def _read(self) -> bool:
        data = self._connection.recv(1 << 18)
        self._frames.extend(self._decoder.feed(data))
        return bool(data)

    def _run(self, header: dict[str, Any]) -> bool:
        """Answer a job, or begin jobs that are run together; whether an exception came out."""
        if "job" in header:
            self._finish()
        TRACER.begin(self._begun)
        self._begun += 1
        self._counted, self._over = {}, 0
        try:
            self._prepare(header["jobs"] if "jobs" in header else [header["job"]])
            if "jobs" in header:
                under_way = self._handler.together(header["jobs"], self._between)
                evidence = self._evidence()
                self._finish()
                self._waiting = under_way, evidence
                return False
            data, blob = self._handler(header["job"])
            reply = encode({"data": data} | self._evidence(), blob)
        except BaseException as error:  # sys.exit included: all of it is the candidate's answer
            reply = encode({"error": raised(error).to_json()} | self._evidence())
            self._finish()
            self._answer(reply)
            return True
        self._answer(reply)
        return False

    def _prepare(self, jobs: Sequence[dict[str, Any]]) -> None:
        """Do the handler's own work before these jobs: the parent is notified, nothing counts."""
        prepare = self._preparation(jobs)
        if prepare is None:
            return
        self._answer(encode({"preparing": True}))
        TRACER.own(begins=True)
        try:
            prepare()
        finally:
            self._answer(encode({"preparing": False}))
        TRACER.begin(self._begun - 1)
        self._guard = self._guard.anew()

    def _between(self) -> None:
        if os.getpid() != self._pid:
            os._exit(0)  # forked past the interpreter's own hooks
        forking.reap()
        # Counted after each job: a collective left out of one and added to the next is noticed.
        for name, n in sequences().items():
            if name not in self._counted:
                self._counted[name] = [0] * self._over
            self._counted[name].append(n)
        self._over += 1
        if self._waiting is not None and self._waiting[0].arrived:
            self._finish()

    def _finish(self) -> None:
        """Answer the jobs that wait for the other ranks, if there are any."""
        if self._waiting is None or os.getpid() != self._pid:
            return
        (under_way, evidence), self._waiting = self._waiting, None
        parts = under_way.answers()
        data = {"parts": [data for data, _ in parts], "sizes": [len(blob) for _, blob in parts]}
        self._answer(encode({"data": data} | evidence, b"".join(blob for _, blob in parts)))

    def _answer(self, reply: bytes) -> None:
        if os.getpid() == self._pid:
            self._connection.sendall(reply)

    def _evidence(self) -> dict[str, Any]:
        body: dict[str, Any] = {}
        changes, beyond_repair = self._guard.changes()
        if changes:
            body["changes"] = changes
            body["replace"] = beyond_repair
            self._spoiled |= beyond_repair
        body["trace"] = TRACER.entries
        if TRACER.count > KEPT:
            body["checksums"] = TRACER.checksums
        body["sequences"] = {name: [n] for name, n in sequences().items()} | {
            f"{name}/": counts for name, counts in self._counted.items()
        }
        return body
