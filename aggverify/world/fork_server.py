"""The launcher: imports torch and handlers once, single-threaded, and forks templates on request.

It never runs code under test, so it is always there to clean up: when the parent ends, however
it ends, the control connection does, and every process below is killed.

Why a fork server of our own: starting an interpreter for each rank costs an import of torch each,
2.6 s for four ranks against 0.1 s here. The parent cannot fork them, because torch's threads do not
survive a fork, and a lock that one of them holds stays locked in the child. Python's own forkserver
runs the person's ``__main__`` again in every child.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import astuple
from itertools import chain
from typing import Any

from aggverify.shadowed import shadowed
from aggverify.world import forking, interpreter, linux, memory, trace, wire
from aggverify.world.backends import backend
from aggverify.world.devices import usable
from aggverify.world.faults import NO_EXCESS, ResourceOveruse
from aggverify.world.options import MOST_HELPERS, MOST_PROCESSES, MOST_THREADS
from aggverify.world.template_process import serve

# How often to look for templates that ended and for processes they left behind.
_TICK_MS = 10
# How often to count the processes below a template, in seconds: a file is read for each.
_COUNT_EVERY = 0.5


def main(control: int, parent: int) -> None:
    """Serve until the control connection ends; ``parent``: the process to end with, 0 for none."""
    if parent:
        # In case a process forked by the parent keeps the connection open after its end.
        linux.die_with_parent(parent, signal.SIGTERM)
    linux.adopt_orphans()
    linux.share_one_heap()
    connection = socket.socket(fileno=control)
    first = wire.receive(connection)
    if first is None:
        os._exit(0)
    sys.path[:] = first[0]["sys_path"]
    sys.argv[:] = ["aggverify"]
    try:
        _preload(first[0]["preload"])
    except BaseException as error:
        wire.send(connection, {"error": shadowed(error) or traceback.format_exc()})
        os._exit(1)
    try:
        wire.send(connection, {"ready": os.getpid()})
        _ForkServer(connection).run()
    except Exception:
        traceback.print_exc()  # read by the parent, if it is still there
    finally:  # also when the parent's end breaks a connection in the middle of a message
        linux.end_descendants()
        os._exit(0)


def _preload(module: str) -> None:
    with interpreter.uncollected():
        import torch
        import torch.distributed

        if not torch.distributed.is_available():
            raise ImportError(f"torch {torch.__version__} was built without torch.distributed")
        torch.set_num_threads(1)
        trace.install()
        forking.install_fork_guard()
        if module:
            with contextlib.suppress(Exception):  # a handler's construction shows why
                importlib.import_module(module)
    # Now frozen: a later collection would touch torch's objects, and so copy their pages, in every
    # rank. One here would free a few megabytes, and make everything wait for it.


class _ForkServer:
    """Forks, kills and reaps templates; whatever else becomes its child is killed."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._templates: dict[int, int] = {}
        """By pid, the bytes that all processes below it may hold."""
        self._excesses: dict[int, ResourceOveruse] = {}
        """By pid, why a template was ended that is not reaped yet."""
        self._counted = 0.0
        # SIGTERM becomes a byte in a pipe that the loop polls: an exception raised by its handler
        # could come in the middle of cleaning up, and leave the rest undone.
        self._asked_to_end, self._ask = os.pipe()
        signal.signal(signal.SIGTERM, lambda number, frame: os.write(self._ask, b"x") and None)

    def run(self) -> None:
        """Serve until the end of stream."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        poll.register(self._asked_to_end, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poll.poll(_TICK_MS if self._templates else None)]
            if self._asked_to_end in ready:
                return
            if ready:
                message = wire.receive(self._connection)
                if message is None:
                    return
                request, fds = message
                if request["op"] == "fork":
                    self._fork(request, fds)
                elif request["op"] == "backend":
                    found = usable(backend(request["name"]))
                    wire.send(self._connection, {"usable": list(astuple(found))})
                elif request["pid"] in self._templates:
                    linux.kill(request["pid"])
            self._reap()
            self._count()

    def _count(self) -> None:
        """End a template below which there are more processes, threads or bytes than allowed."""
        now = time.monotonic()
        if now - self._counted < _COUNT_EVERY:
            return
        self._counted = now
        held_by: dict[int, int] = {}
        for pid in self._templates.keys() - self._excesses.keys():
            trees = [[r, *linux.descendants(r, MOST_HELPERS)] for r in linux.children(pid)]
            size = sum(map(len, trees))
            if size >= MOST_PROCESSES or any(len(tree) > MOST_HELPERS for tree in trees):
                self._excesses[pid] = ResourceOveruse(processes=size)
            else:
                self._add_up(pid, chain.from_iterable(trees), held_by)
            if pid in self._excesses:
                linux.end_tree(pid)
        # Several may do together what none does by itself: the one with the most is ended.
        if len(held_by) > 1 and sum(held_by.values()) > max(
            self._templates[pid] for pid in held_by
        ):
            most = max(held_by, key=held_by.__getitem__)
            self._excesses[most] = ResourceOveruse(held=held_by[most] >> 20)
            linux.end_tree(most)

    def _add_up(self, template: int, below: Iterable[int], held_by: dict[int, int]) -> None:
        """Note in ``held_by`` what template and processes hold together, or that it is too much."""
        pids = list(below)
        first, others = memory.own(template), list(map(memory.own, pids))
        # Pages that a rank has from the template count once, as the template's.
        held = first.anonymous + sum(max(0, each.anonymous - first.anonymous) for each in others)
        shared = first.shared + sum(max(0, each.shared - first.shared) for each in others)
        # Mapped pages of memory files are in both numbers, so the larger one counts.
        in_files = memory.in_files([template, *pids])
        held += max(shared, in_files)
        threads = first.threads + sum(each.threads for each in others)
        if threads > MOST_THREADS:
            self._excesses[template] = ResourceOveruse(threads=threads)
        elif held > self._templates[template]:
            self._excesses[template] = ResourceOveruse(held=held >> 20, in_files=in_files >> 20)
        else:
            held_by[template] = held

    def _fork(self, request: dict[str, Any], fds: list[int]) -> None:
        me = os.getpid()
        try:
            pid = forking.fork()
        except OSError as error:
            wire.send(self._connection, {"refused": [error.errno, error.strerror]})
            pid = -1
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._connection.close()
            os.close(self._asked_to_end)
            os.close(self._ask)
            serve(fds, request, me)
        for fd in fds:
            os.close(fd)
        if pid < 0:
            return
        self._templates[pid] = request["held"]
        wire.send(self._connection, {"forked": pid})

    def _reap(self) -> None:
        for pid in linux.children(os.getpid()):
            # Ranks die with their template; processes that ranks started are adopted here.
            if pid not in self._templates:
                linux.kill(pid)
            done, status = os.waitpid(pid, os.WNOHANG)
            if done and pid in self._templates:
                del self._templates[pid]
                exit_status = os.waitstatus_to_exitcode(status)
                excess = astuple(self._excesses.pop(pid, NO_EXCESS))
                wire.send(self._connection, {"exit": exit_status, "pid": pid, "excess": excess})
