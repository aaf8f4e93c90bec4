"""The launcher's process, started by the parent; in a sandbox where one is asked for."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from dataclasses import dataclass

from aggverify.world import groups, interpreter, linux, memory, resource_headroom, sandbox
from aggverify.world.backends import BACKENDS
from aggverify.world.faults import PoolError
from aggverify.world.groups import Group
from aggverify.world.options import LEAST_MEMORY, MOST_PROCESSES, SHARE_OF_MEMORY
from aggverify.world.sandbox import Sandbox

GROUPED = True
"""Tests set it to False: the launcher's own counts hold then, as where no group can be made."""
MARK = "AGGVERIFY_POOL"
_ENVIRONMENT = {
    # One thread each: ranks fill the cores, and only a single-threaded process forks safely.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # Remarks of the backend would pass for the candidate's output.
    "TORCH_CPP_LOG_LEVEL": "FATAL",
} | {name: value for backend in BACKENDS.values() for name, value in backend.environment}


@dataclass(frozen=True, slots=True)
class Started:
    """The process, the connection to it, and what it writes."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    output: int
    most: int
    """Bytes that all processes below a template may hold together."""
    group: Group | None
    """What holds them all, where one can be made."""
    inside: bool
    """Whether the process makes a sandbox, and the launcher is the first one in it."""

    @property
    def pid(self) -> int:
        """The launcher's own, as long as it lives."""
        within = linux.children(self.process.pid) if self.inside else ()
        return next(iter(within), self.process.pid)


def start(mark: str, inside: Sandbox | None) -> Started:
    """Start it; raises OSError where there is no room, PoolError where there is no sandbox."""
    with contextlib.ExitStack() as undo:
        ours, theirs = map(undo.enter_context, socket.socketpair())
        output = os.memfd_create("launcher output")
        undo.callback(os.close, output)
        # The kernel's signal on the parent's death follows the thread that made the process.
        in_main = threading.current_thread() is threading.main_thread()
        parent = os.getpid() if in_main and inside is None else 0
        command, files = (
            interpreter.command("fork_server", theirs.fileno(), parent),
            [theirs.fileno()],
        )
        environment = _ENVIRONMENT | {MARK: mark}
        if inside is None:
            environment = {**os.environ, **environment}
        else:
            files.append(sandbox.filtered())
            undo.callback(os.close, files[-1])
            command = inside.command(command, files[-1], follow=in_main)
            environment = inside.environment(environment)
        most = max(LEAST_MEMORY, int(SHARE_OF_MEMORY * memory.free()))
        # Above the launcher's own limits: it ends a template with a message, the kernel without.
        group = groups.made(8 * MOST_PROCESSES, most + LEAST_MEMORY) if GROUPED else None
        if group is not None:
            undo.callback(group.close)
            command = group.entering(command)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            pass_fds=files,
            # Its own session: the terminal's Ctrl-C is for the parent to handle.
            start_new_session=True,
        )
        undo.pop_all()
    theirs.close()
    if inside is not None:
        os.close(files[-1])
    return Started(process, ours, output, most, group, inside is not None)


def no_room(error: OSError) -> PoolError:
    """Return what is raised where a process cannot be started, with what there is too little of."""
    what = "ranks cannot be started here"
    if error.errno not in resource_headroom.NO_MORE:
        return PoolError(f"{what}: {error}")
    return PoolError(resource_headroom.without(what, error.strerror))
