"""The forking side: zygote -> template -> ranks. Started as ``python -m aggverify.world.zygote``.

Single-threaded until the ranks, so that forking is safe. Each process dies with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

from aggverify.world import wire

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent goes; leave at once if it is gone already."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def construct(order: dict[str, Any]) -> Any:
    """The handler object an order names; extra ``paths`` go first on sys.path."""
    sys.path[:0] = order.get("paths", [])
    module, _, name = order["handler"].partition(":")
    return getattr(importlib.import_module(module), name)(order["setup"])


class Server:
    """Forks children on request. ``handler`` is None in the zygote: ranks construct their own."""

    def __init__(self, control: socket.socket, handler: Any) -> None:
        self._control = control
        self._handler = handler

    def serve(self) -> NoReturn:
        """Answer orders until the other end closes."""
        while True:
            try:
                order, _, fds = wire.receive(self._control)
            except wire.Closed:
                os._exit(0)
            if order["op"] == "template":
                pids = [self._fork_template(order, fds)]
                wire.send(self._control, {"pids": pids})
            elif order["op"] == "world":
                wire.send(self._control, {"pids": self._fork_world(order, fds)})
            else:
                wire.send(self._control, {"statuses": [_reap(pid) for pid in order["pids"]]})

    def _fork_template(self, order: dict[str, Any], fds: list[int]) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            _close(fds)
            return pid
        die_with_parent(parent)
        self._control.close()
        _quiet(fds[1])
        control = socket.socket(fileno=fds[0])
        _serve_template(control, order)

    def _fork_world(self, order: dict[str, Any], fds: list[int]) -> list[int]:
        """Descriptors: the store, then per rank its socket, its output and its stacks."""
        from aggverify.world import rank

        store, per_rank = fds[0], [fds[i : i + 3] for i in range(1, len(fds), 3)]
        parent, pids = os.getpid(), []
        for number, mine in enumerate(per_rank):
            pid = os.fork()
            if not pid:
                die_with_parent(parent)
                self._control.close()
                for other in per_rank:
                    if other is not mine:
                        _close(other)
                rank.main(number, len(per_rank), store, mine, order, self._handler)
            pids.append(pid)
        _close(fds)
        return pids


def _serve_template(control: socket.socket, order: dict[str, Any]) -> NoReturn:
    try:
        handler = construct(order)
        answer = {"description": handler.describe()}
    except BaseException as error:
        wire.send(control, {"error": describe_exception(error)})
        os._exit(1)
    answer["threads"] = len(os.listdir("/proc/self/task"))
    gc.freeze()
    try:
        wire.send(control, answer)
    except (TypeError, ValueError) as error:
        wire.send(control, {"error": describe_exception(error)})
        os._exit(1)
    Server(control, handler).serve()


def describe_exception(error: BaseException) -> dict[str, str]:
    """Message and traceback as text; frames of this package are left out of the traceback."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if f"{os.sep}aggverify{os.sep}" not in frame.filename
        and not frame.filename.startswith("<frozen")
    ]
    text = "".join(traceback.format_list(frames[-8:]))
    message = "".join(traceback.format_exception_only(error)).strip()
    return {"message": message[:2000], "traceback": text[:8000]}


def _reap(pid: int) -> int | None:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return None


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _quiet(output: int) -> None:
    """Nothing of the candidate's reaches the terminal; its output goes to a bounded file."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(null)


def main() -> NoReturn:
    """Import torch once, then serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(int(sys.argv[2]))
    import torch
    import torch.distributed  # noqa: F401

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=int(sys.argv[1]))
    wire.send(control, {"ready": True, "threads": len(os.listdir("/proc/self/task"))})
    Server(control, None).serve()


if __name__ == "__main__":
    main()
