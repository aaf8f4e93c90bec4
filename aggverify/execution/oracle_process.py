"""A person's own oracle (``--oracle FILE``) in a child process.

It may hang, exit or eat memory, and settings of a pull request may name it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

from aggverify.oracles import OracleError, Step
from aggverify.oracles.custom import CustomOracle, load
from aggverify.oracles.modes.base import exact_number
from aggverify.world import linux, memory, wire

ANSWER_SECONDS = 120.0
"""How long one answer may take; a usual one takes milliseconds."""
_POLL_SECONDS = 0.1
"""Between two calls of what may interrupt the wait."""
_CODE = "from aggverify.execution.oracle_process import main; main({fd}, {parent}, {path!r})"
_turn: ContextVar[Callable[[], None]] = ContextVar("turn", default=lambda: None)


@contextlib.contextmanager
def interruptible(turn: Callable[[], None]) -> Iterator[None]:
    """Call ``turn`` while an oracle is waited for: it raises OutOfTime when the time is over."""
    token = _turn.set(turn)
    try:
        yield
    finally:
        _turn.reset(token)


def loaded_oracle(path: str) -> CustomOracle:
    """Return the oracle of a file, which runs in a child.

    Raises OracleError as ``custom.load`` does.
    """
    child = _Child(path)
    child.receive()
    return CustomOracle(Path(path).name, child, path)


class _Child:
    """Called with a step, gives the raw weights of the file's function."""

    def __init__(self, path: str) -> None:
        self._path = path
        ours, theirs = socket.socketpair()
        with theirs:
            code = _CODE.format(fd=theirs.fileno(), parent=os.getpid(), path=path)
            paths = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": paths},
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the parent to handle
            )
        self._socket = ours
        self._close = weakref.finalize(self, _end, self._process, ours)

    def __call__(self, step: Step) -> list[Fraction]:
        try:
            wire.send(self._socket, step.to_json())
        except OSError:
            raise self._lost() from None
        return [Fraction(text) for text in self.receive()["weights"]]

    def receive(self) -> dict[str, Any]:
        """Return the next answer; raises OracleError where it is an error, or there is none."""
        ends = time.monotonic() + ANSWER_SECONDS
        while not select.select([self._socket], [], [], _POLL_SECONDS)[0]:
            try:
                _turn.get()()
            except BaseException:
                self._close()
                raise
            if time.monotonic() > ends:
                self._close()
                raise OracleError(f"{self._path} gave no answer within {ANSWER_SECONDS:g} s")
        try:
            message = wire.receive(self._socket)
        except (wire.WireError, OSError):
            message = None
        if message is None:
            raise self._lost()
        answer, _ = message
        if "error" in answer:
            raise OracleError(answer["error"])
        return answer

    def _lost(self) -> OracleError:
        self._close()
        code = self._process.returncode
        how = f"exit status {code}" if code >= 0 else f"signal {-code}"
        return OracleError(f"{self._path} ended its process ({how}) instead of giving weights")


def _end(process: subprocess.Popen[bytes], connection: socket.socket) -> None:
    connection.close()
    try:
        process.wait(_POLL_SECONDS)  # it ends by itself where the connection does
    except subprocess.TimeoutExpired:
        linux.end_tree(process.pid)
        process.wait()


def main(fd: int, parent: int, path: str) -> NoReturn:
    """Be the child: load the file, answer steps until the connection ends."""
    linux.die_with_parent(parent)
    most = memory.free() // 2
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    with socket.socket(fileno=fd) as connection:
        try:
            oracle = load(path)
            wire.send(connection, {})
            while (message := wire.receive(connection)) is not None:
                wire.send(connection, _answer(oracle, Step.from_json(message[0])))
        except OracleError as error:
            wire.send(connection, {"error": str(error)})
    os._exit(0)


def _answer(oracle: CustomOracle, step: Step) -> dict[str, Any]:
    try:
        return {"weights": [str(exact_number(value)) for value in oracle.weights(step)]}
    except (OracleError, MemoryError, RecursionError) as error:
        return {"error": str(error) or f"{oracle.name}: {type(error).__name__}"}
