"""The parent's side: start the zygote, fork templates, send jobs to worlds, collect outcomes."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aggverify.world import wire
from aggverify.world.outcomes import Job, Limits, Outcome, TemplateFailure
from aggverify.world.remains import death, tail
from aggverify.world.worlds import World, collect

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Pool:
    """A zygote process with torch imported; a context manager that leaves nothing behind."""

    def __init__(self, *, limits: Limits = Limits()) -> None:
        self.limits = limits
        parent, child = socket.socketpair()
        environment = os.environ | {name: "1" for name in _THREADS}
        environment |= {"GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "FATAL"}
        roots = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(roots)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "aggverify.world.zygote", str(child.fileno()), str(os.getpid())],
            pass_fds=[child.fileno()],
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        child.close()
        self._control = parent
        self._ready = False
        self._templates: list[Template] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def template(
        self, handler: str, setup: dict[str, Any], *, paths: Sequence[str] = ()
    ) -> Template | TemplateFailure:
        """Fork a process that constructs ``module:Class`` with ``setup``.

        What its constructor raises, and its death, come back as a TemplateFailure.
        """
        self._wait_until_ready()
        order = {"op": "template", "handler": handler, "setup": setup, "paths": list(paths)}
        parent, child = socket.socketpair()
        output = os.memfd_create("aggverify-output")
        wire.send(self._control, order, fds=[child.fileno(), output])
        child.close()
        pid = self._answer()["pids"][0]
        try:
            answer, _, _ = wire.receive(parent)
        except wire.Closed:
            status = self.reap([pid])[0]
            parent.close()
            return TemplateFailure(f"the process {death(status)} while importing", tail(output))
        if "error" in answer:
            self.reap([pid])
            parent.close()
            os.close(output)
            return TemplateFailure(answer["error"]["message"], answer["error"]["traceback"])
        os.close(output)
        template = Template(self, parent, pid, order, answer)
        self._templates.append(template)
        return template

    def ask(self, order: dict[str, Any], fds: list[int] | None = None) -> dict[str, Any]:
        """One order to the zygote and its answer."""
        wire.send(self._control, order, fds=fds)
        return self._answer()

    def reap(self, pids: Sequence[int]) -> list[int | None]:
        """Exit statuses of killed children of the zygote."""
        statuses: list[int | None] = self.ask({"op": "reap", "pids": list(pids)})["statuses"]
        return statuses

    def forget(self, template: Template) -> None:
        """A closed template is no longer this pool's to close."""
        self._templates.remove(template)

    def close(self) -> None:
        """Stop every process; idempotent."""
        for template in list(self._templates):
            template.close()
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()

    def _wait_until_ready(self) -> None:
        if not self._ready:
            self._answer()
            self._ready = True

    def _answer(self) -> dict[str, Any]:
        try:
            return wire.receive(self._control)[0]
        except wire.Closed:
            status = self._process.wait()
            raise RuntimeError(f"the launcher process ended with status {status}") from None


class Template:
    """A process with the candidate imported, and the worlds forked from it, one per size."""

    def __init__(
        self,
        pool: Pool,
        control: socket.socket,
        pid: int,
        order: dict[str, Any],
        answer: dict[str, Any],
    ) -> None:
        self._pool, self._control, self._pid, self._order = pool, control, pid, order
        self.description: dict[str, Any] = answer["description"]
        self.limits = pool.limits
        # A process with threads must not be forked: its ranks come from the clean zygote then.
        self._forkable = answer["threads"] == 1
        self._worlds: dict[int, World] = {}
        self._closed = False
        self._pending: Pending | None = None

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run jobs on worlds of mixed sizes at the same time; outcomes in the jobs' order."""
        return self.submit(jobs).wait()

    def submit(self, jobs: Sequence[Job]) -> Pending:
        """Start jobs; the ranks work while the caller does something else. One at a time."""
        if self._pending is not None:
            raise RuntimeError("the jobs submitted before have not been waited for")
        self._pending = Pending(self, jobs)
        return self._pending

    def finish(self) -> None:
        """The submitted jobs are done with."""
        self._pending = None

    def restart_worlds(self) -> None:
        """Kill every world; the next run forks fresh ones."""
        for size in list(self._worlds):
            self.discard(size)

    def close(self) -> None:
        """Stop the template and its ranks; idempotent."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(wire.Closed, RuntimeError):
            self.restart_worlds()
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, 9)
        with contextlib.suppress(wire.Closed, RuntimeError):
            self._pool.reap([self._pid])
        self._pool.forget(self)

    def world(self, size: int) -> World:
        """The world of that size, forked when it is first needed."""
        if size not in self._worlds:
            self._worlds[size] = World.forked(size, self._fork, self._reap)
        return self._worlds[size]

    def discard(self, size: int) -> None:
        """Kill the world of that size; the next job forks a fresh one."""
        self._worlds.pop(size).kill()

    def _fork(self, fds: list[int]) -> list[int]:
        order = {**self._order, "op": "world"}
        answer = self._ask(order, fds)
        pids: list[int] = answer["pids"]
        return pids

    def _reap(self, pids: Sequence[int]) -> list[int | None]:
        statuses: list[int | None] = self._ask({"op": "reap", "pids": list(pids)})["statuses"]
        return statuses

    def _ask(self, order: dict[str, Any], fds: list[int] | None = None) -> dict[str, Any]:
        if not self._forkable:
            return self._pool.ask(order, fds)
        wire.send(self._control, order, fds=fds)
        return wire.receive(self._control)[0]


class Pending:
    """Jobs on their way through the worlds of one template."""

    def __init__(self, template: Template, jobs: Sequence[Job]) -> None:
        self._template, self._count = template, len(jobs)
        self._waiting: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        for number, job in enumerate(jobs):
            self._waiting.setdefault(job.world, []).append((number, job.payload))
        self._active = self._dispatch()

    def wait(self) -> list[Outcome]:
        """Collect every outcome, in the jobs' order; faulty worlds are replaced on the way."""
        outcomes: dict[int, Outcome] = {}
        limits = self._template.limits
        try:
            while self._active:
                outcomes |= collect(list(self._active.values()), limits)
                for size, world in self._active.items():
                    if world.broken:
                        self._template.discard(size)
                    left = [job for job in self._waiting[size] if job[0] not in outcomes]
                    self._waiting[size] = left
                self._active = self._dispatch()
        except BaseException:
            self._template.restart_worlds()  # half-run jobs must not answer later ones
            raise
        finally:
            self._template.finish()
        return [outcomes[number] for number in range(self._count)]

    def _dispatch(self) -> dict[int, World]:
        active = {}
        for size, jobs in self._waiting.items():
            if jobs:
                active[size] = self._template.world(size)
                active[size].dispatch(jobs)
        return active
