"""The launcher: imports torch once, single-threaded, and forks templates on request.

It never runs code under test, so it is always there to clean up: when the parent ends, however
it ends, the control connection does, and every process below is killed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import traceback
from typing import Any

from aggverify.world import linux, trace, wire
from aggverify.world.template_process import serve


def main(control: int, parent: int) -> None:
    """Serve until the control connection ends; ``parent`` 0: do not follow the maker's thread."""
    if parent:
        linux.die_with_parent(parent)
    linux.adopt_orphans()
    connection = socket.socket(fileno=control)
    first = wire.receive(connection)
    if first is None:
        os._exit(0)
    sys.path[:] = first[0]["sys_path"]
    sys.argv[:] = ["aggverify"]
    try:
        _preload()
    except BaseException:
        wire.send(connection, {"error": traceback.format_exc()})
        os._exit(1)
    wire.send(connection, {"ready": os.getpid()})
    _serve(connection)
    linux.end_descendants()
    os._exit(0)


def _preload() -> None:
    import torch
    import torch.distributed

    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        raise ImportError(f"torch {torch.__version__} was built without the gloo backend")
    trace.install()
    gc.collect()
    gc.freeze()


def _serve(connection: socket.socket) -> None:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    templates: set[int] = set()
    while True:
        # Without work there is nothing to reap but templates, whose end can wait a moment.
        ready = poll.poll(10 if templates else None)
        if ready:
            message = wire.receive(connection)
            if message is None:
                return
            templates.add(_fork(connection, *message))
        _reap(connection, templates)


def _fork(connection: socket.socket, request: dict[str, Any], fds: list[int]) -> int:
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        connection.close()
        serve(*fds, request, me)
    for fd in fds:
        os.close(fd)
    wire.send(connection, {"forked": pid})
    return pid


def _reap(connection: socket.socket, templates: set[int]) -> None:
    while templates:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in templates:
            templates.discard(pid)
            wire.send(connection, {"exit": os.waitstatus_to_exitcode(status), "pid": pid})
            # Ranks die with their template; what they had started was adopted here.
            _end_strays(templates)


def _end_strays(templates: set[int]) -> None:
    for pid in linux.children(os.getpid()):
        if pid not in templates:
            linux.kill(pid)
