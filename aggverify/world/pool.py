"""The pool: one zygote process that has imported torch, and the templates forked from it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aggverify.world import linux, slate, verdict, wire
from aggverify.world.faults import PoolError, TemplateFailure
from aggverify.world.link import Output, output_pipe
from aggverify.world.options import Options
from aggverify.world.template import Template

_ROOT = str(Path(__file__).resolve().parent.parent.parent)
# One thread each: ranks fill the cores, and only a single-threaded process forks safely.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}
_CODE = (
    "import sys; sys.path.insert(0, {root!r}); "
    "from aggverify.world.zygote import main; main({fd}, {parent})"
)


class Pool:
    """Starts the zygote; a context manager that leaves no process behind.

    Returns at once, torch is imported meanwhile. Raises PoolError where ranks cannot run.
    """

    def __init__(self, options: Options | None = None) -> None:
        if (reason := linux.supported()) is not None:
            raise PoolError(reason)
        self._options = options or Options()
        self._templates: list[Template] = []
        self._closed = False
        self._start_zygote()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def template(
        self, handler: str, setup: Mapping[str, Any], *, paths: Sequence[str] = ()
    ) -> Template | TemplateFailure:
        """Construct ``module:Class`` with ``setup`` in a process of its own.

        ``paths`` are put before sys.path there. What goes wrong in the construction comes back as
        a TemplateFailure.
        """
        self._check_open()
        request = {"handler": handler, "setup": dict(setup), "paths": list(paths), "late": False}
        opened = self._open(request)
        if isinstance(opened, TemplateFailure):
            return opened
        connection, output, page, header = opened
        template = Template(
            connection, output, page, header["description"], self._options, lambda: None
        )
        self._templates.append(template)
        return template

    def _open(self, request):
        ours, theirs = socket.socketpair()
        output, write = output_pipe()
        page = slate.create()
        wire.send(self._connection, request, fds=[theirs.fileno(), write, page])
        theirs.close()
        os.close(write)
        self._ready()
        forked = wire.receive(self._connection)
        message = wire.receive(ours)
        if message is None:
            status = wire.receive(self._connection)[0]["exit"]
            return TemplateFailure(
                "died", verdict.exit_text(status), output=output.drain(), exit_status=status
            )
        header = message[0]
        if "error" in header:
            e = header["error"]
            return TemplateFailure(
                "exception", f"{e['type']}: {e['message']}", e["traceback"], output.drain()
            )
        return ours, output, page, header

    def close(self) -> None:
        """End every process."""
        if self._closed:
            return
        self._closed = True
        for template in self._templates:
            template.close()
        self._connection.close()
        self._process.wait(10)

    def _start_zygote(self) -> None:
        ours, theirs = socket.socketpair()
        in_main = threading.current_thread() is threading.main_thread()
        code = _CODE.format(root=_ROOT, fd=theirs.fileno(), parent=os.getpid() if in_main else 0)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **_ENVIRONMENT},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._connection = ours
        self._is_ready = False
        wire.send(ours, {"sys_path": [p or os.getcwd() for p in sys.path]})

    def _ready(self) -> None:
        if self._is_ready:
            return
        message = wire.receive(self._connection)
        if message is None or "error" in message[0]:
            raise PoolError(f"cannot start ranks: {message}")
        self._is_ready = True

    def _check_open(self) -> None:
        if self._closed:
            raise PoolError("the pool is closed")
