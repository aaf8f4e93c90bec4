"""A world of ranks seen from the parent, and the loop that collects from several at once."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aggverify.world import wire
from aggverify.world.outcomes import Fault, FaultKind, Limits, Outcome, Replies, Reply
from aggverify.world.remains import death, tail
from aggverify.world.watchdog import INTERVAL, Watch

_STACK_WAIT = 0.03
Frame = tuple[dict[str, Any], bytes]


@dataclass(slots=True)
class _Member:
    """One rank: its process, its socket, its in-memory output and stack files."""

    rank: int
    pid: int
    sock: socket.socket
    inbox: wire.Inbox
    output: int
    stacks: int


@dataclass(slots=True)
class World:
    """Ranks of one size. ``broken`` worlds must be killed and replaced."""

    members: list[_Member]
    reap: Callable[[Sequence[int]], list[int | None]]
    broken: bool = False
    _queue: list[int] = field(default_factory=list)
    _frames: dict[int, dict[int, Frame]] = field(default_factory=dict)
    _watch: Watch = field(default_factory=Watch)

    @staticmethod
    def forked(
        size: int,
        fork: Callable[[list[int]], list[int]],
        reap: Callable[[Sequence[int]], list[int | None]],
    ) -> World:
        """Ask for ``size`` ranks that meet in a store held in memory."""
        store = os.memfd_create("aggverify-store")
        ours, theirs, files = [], [], []
        for _ in range(size):
            parent, child = socket.socketpair()
            ours.append(parent)
            theirs.append(child)
            files.append((os.memfd_create("aggverify-output"), os.memfd_create("aggverify-stacks")))
        fds = [store]
        for child, (output, stacks) in zip(theirs, files, strict=True):
            fds += [child.fileno(), output, stacks]
        pids = fork(fds)
        os.close(store)
        members = []
        for rank, (pid, sock) in enumerate(zip(pids, ours, strict=True)):
            theirs[rank].close()
            members.append(_Member(rank, pid, sock, wire.Inbox(sock), *files[rank]))
        return World(members, reap)

    def dispatch(self, jobs: Sequence[tuple[int, dict[str, Any]]]) -> None:
        """Send a batch to every rank; each reads all of it before it starts."""
        self._queue = [number for number, _ in jobs]
        self._frames = {number: {} for number in self._queue}
        for member in self.members:
            member.sock.setblocking(True)
            with contextlib.suppress(wire.Closed):  # a dead rank is found when reading
                wire.send(member.sock, {"jobs": list(jobs)})
            member.sock.setblocking(False)
        self._watch = Watch()

    @property
    def busy(self) -> bool:
        """Whether some job of the batch has no outcome yet."""
        return bool(self._queue) and not self.broken

    def take(self, member: _Member) -> list[tuple[int, Outcome]]:
        """Read what a rank sent; return the jobs that are complete now."""
        try:
            frames = member.inbox.read()
        except wire.Closed:
            return [self._fault("died", member, "")]
        for header, blob in frames:
            if "broken" in header:
                return [self._fault("died", member, header["broken"]["message"])]
            self._frames[header["job"]][member.rank] = (header, blob)
        if frames:
            self._watch.sign()
        return self._complete()

    def look(self, limits: Limits) -> list[tuple[int, Outcome]]:
        """The watchdog's turn: has this world stopped moving, or does a rank run forever?"""
        if not self.busy or not self._watch.due():
            return []
        done = self._frames[self._queue[0]]
        waiting = [m for m in self.members if m.rank not in done]
        pid = self._watch.runaway([m.pid for m in waiting], limits.cpu_seconds)
        if pid is not None:
            culprit = next(m for m in waiting if m.pid == pid)
            message = f"used more than {limits.cpu_seconds:g} s of CPU time for one case"
            return [self._fault("runaway", culprit, message)]
        if self._watch.blocked([m.pid for m in waiting]):
            return [self._blocked(waiting)]
        return []

    def _complete(self) -> list[tuple[int, Outcome]]:
        out: list[tuple[int, Outcome]] = []
        while self._queue and len(self._frames[self._queue[0]]) == len(self.members):
            number = self._queue.pop(0)
            frames = self._frames.pop(number)
            outcome = _outcome([frames[rank] for rank in range(len(self.members))])
            out.append((number, outcome))
            if isinstance(outcome, Fault) and not self._go_on(frames):
                self.broken = True
                break
        return out

    def _go_on(self, frames: dict[int, Frame]) -> bool:
        """After an exception raised alike on every rank nothing is out of step: carry on."""
        headers = [header for header, _ in frames.values()]
        alike = _divergence([frames[rank][0]["trace"] for rank in sorted(frames)]) is None
        if not all("error" in header for header in headers) or not alike:
            return False
        for member in self.members:
            with contextlib.suppress(wire.Closed, BlockingIOError):
                wire.send(member.sock, {"op": "go on"})
        return True

    def _blocked(self, waiting: Sequence[_Member]) -> tuple[int, Outcome]:
        number = self._queue[0]
        raised = [
            (rank, header["error"])
            for rank, (header, _) in sorted(self._frames[number].items())
            if "error" in header
        ]
        if raised:
            # The others only wait for the one that raised.
            rank, error = raised[0]
            self.broken = True
            return number, Fault("exception", rank, error["message"], error["traceback"])
        stacks = self._stacks(waiting)
        names = ", ".join(str(m.rank) for m in waiting)
        self.broken = True
        message = f"rank {names} of {len(self.members)} wait for a collective that never completes"
        return number, Fault("blocked", None, message, stacks=stacks)

    def _stacks(self, members: Sequence[_Member]) -> dict[int, str]:
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGUSR1)
        time.sleep(_STACK_WAIT)
        return {
            m.rank: os.pread(m.stacks, 8000, 0).decode(errors="replace").strip() for m in members
        }

    def _fault(self, kind: FaultKind, member: _Member, message: str) -> tuple[int, Outcome]:
        number = self._queue[0]
        self.broken = True
        stacks = {}
        if kind == "died":
            os.kill(member.pid, signal.SIGKILL)  # a no-op for the dead, not yet reaped
            status = self.reap([member.pid])[0]
            member.pid = 0
            message = message or f"the process {death(status)}"
            stacks = {member.rank: os.pread(member.output, 4000, 0).decode(errors="replace")}
        else:
            stacks = self._stacks([member])
        return number, Fault(
            kind, member.rank, message, stacks={r: s for r, s in stacks.items() if s}
        )

    def kill(self) -> None:
        """End every rank and release what the parent holds of it."""
        pids = [member.pid for member in self.members if member.pid]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.reap(pids)
        for member in self.members:
            member.sock.close()
            tail(member.output)
            os.close(member.stacks)


def _outcome(frames: Sequence[Frame]) -> Outcome:
    """Replies if every rank replied; the first exception, or a diverging trace, otherwise."""
    for rank, (header, _) in enumerate(frames):
        if "error" in header:
            error = header["error"]
            return Fault("exception", rank, error["message"], error["traceback"])
    found = _divergence([header["trace"] for header, _ in frames])
    if found is not None:
        return found
    return Replies(tuple(Reply(header["data"], blob) for header, blob in frames))


def _divergence(traces: Sequence[Sequence[Sequence[str]]]) -> Fault | None:
    """The first process group whose members did not issue the same collectives."""
    by_group: dict[str, dict[int, list[str]]] = {}
    for rank, trace in enumerate(traces):
        for group, call in trace:
            by_group.setdefault(group, {}).setdefault(rank, []).append(call)
    for group, calls in by_group.items():
        members = [int(rank) for rank in group.split(",")]
        first = calls.get(members[0], [])
        for rank in members[1:]:
            mine = calls.get(rank, [])
            if mine != first:
                message = (
                    f"in the group of ranks {group}, rank {members[0]} issued {_shown(first)}; "
                    f"rank {rank} issued {_shown(mine)}"
                )
                return Fault("diverged", rank, message)
    return None


def _shown(calls: Sequence[str]) -> str:
    return "; ".join(calls[:6]) or "no collective"


def collect(worlds: Sequence[World], limits: Limits) -> dict[int, Outcome]:
    """Wait until every world has finished its batch or broken; outcomes by job number."""
    outcomes: dict[int, Outcome] = {}
    with selectors.DefaultSelector() as selector:
        for world in worlds:
            for member in world.members:
                selector.register(member.sock, selectors.EVENT_READ, (world, member))
        while any(world.busy for world in worlds):
            for key, _ in selector.select(INTERVAL):
                world, member = key.data
                if world.busy:
                    outcomes.update(world.take(member))
                if not world.busy:
                    selector.unregister(member.sock)
            for world in worlds:
                outcomes.update(world.look(limits))
    return outcomes
