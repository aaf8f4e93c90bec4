"""One rank: joins its world, runs jobs, sends replies."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
from typing import Any, NoReturn

from aggverify.world import wire
from aggverify.world.trace import Trace


def main(
    rank: int, size: int, store: int, fds: list[int], order: dict[str, Any], handler: Any
) -> NoReturn:
    """Run until the parent closes the socket; never returns into the template's code."""
    control = socket.socket(fileno=fds[0])
    try:
        _prepare(fds[1], fds[2])
        if handler is None:
            from aggverify.world.zygote import construct

            handler = construct(order)
        _join(rank, size, store)
        trace = Trace.installed()
        handler.start(rank, size)
        while True:
            batch, _, _ = wire.receive(control)
            for number, job in batch["jobs"]:
                _run(control, handler, trace, number, job)
    except wire.Closed:
        os._exit(0)
    except BaseException as error:
        from aggverify.world.zygote import describe_exception

        with contextlib.suppress(wire.Closed, OSError):
            wire.send(control, {"broken": describe_exception(error)})
        os._exit(1)


def _prepare(output: int, stacks: int) -> None:
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
    with contextlib.suppress(OSError, AttributeError):
        # gloo's loop thread otherwise spins on a lock whose holder was preempted.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _join(rank: int, size: int, store: int) -> None:
    import torch.distributed as dist

    # A store in memory, reached by descriptor: no file, no port, nothing to clean up.
    shared = dist.FileStore(f"/proc/self/fd/{store}", size)
    dist.init_process_group("gloo", store=shared, rank=rank, world_size=size)


def _run(control: socket.socket, handler: Any, trace: Trace, number: int, job: Any) -> None:
    trace.clear()
    try:
        data, blob = handler(job)
        wire.send(control, {"job": number, "data": data, "trace": trace.calls}, blob)
    except wire.Closed:
        raise
    except BaseException as error:
        from aggverify.world.zygote import describe_exception

        wire.send(
            control, {"job": number, "error": describe_exception(error), "trace": trace.calls}
        )
        # The others may still wait for this rank: only the parent knows whether to go on.
        wire.receive(control)
