"""The pool: one fork server that has imported torch, and the templates forked from it."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from aggverify.errors import InputError
from aggverify.world import linux
from aggverify.world.backends import AUTO, CUDA_GLOO, GLOO, NCCL, Backend, backend
from aggverify.world.faults import PoolError, TemplateFailure, Unusable
from aggverify.world.launching import Launcher
from aggverify.world.local_launcher import LocalLauncher
from aggverify.world.options import Options
from aggverify.world.template import Template


class Pool:
    """Ranks for hire; a context manager that leaves no process behind.

    Returns at once, torch is imported meanwhile. ``launcher`` may be shared by pools with
    different options: each then ends its own templates only, and one that asks for another sandbox
    has its own launcher. Raises PoolError where ranks cannot run. Not safe for use by several
    threads at a time.
    """

    def __init__(self, options: Options | None = None, *, launcher: Launcher | None = None) -> None:
        if (reason := linux.unsupported()) is not None:
            raise PoolError(reason)
        self._options = options or Options()
        inside = self._options.sandbox
        launcher = launcher if launcher is not None and launcher.inside == inside else None
        self._launcher: Launcher = launcher or LocalLauncher(inside, self._options.preload)
        # Held until closed, since what they hold open is not closed by being forgotten.
        self._templates: list[Template] = []
        own = None if launcher else self._launcher
        # A pool that was not closed must not outlive its owner, nor the interpreter.
        self._finalizer = weakref.finalize(self, _end, self._templates, own)

    @property
    def turn(self) -> Callable[[], None]:
        """What is called while ranks are waited for (``Options.turn``)."""
        return self._options.turn

    @property
    def ready(self) -> bool:
        """Whether ranks can be had at once; False while torch is imported."""
        return self._launcher.ready

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
        self,
        handler: str,
        setup: Mapping[str, Any],
        *,
        paths: Sequence[str] = (),
        more: Mapping[str, Any] | None = None,
    ) -> Template | TemplateFailure:
        """Construct ``module:Class`` with ``setup`` (JSON-able) in its own process.

        ``paths`` come before everything on sys.path there; ``more`` are options other than the
        pool's. What goes wrong in the import or the construction comes back as a TemplateFailure;
        PoolError means that the pool itself is broken.
        """
        if not self._finalizer.alive:
            raise PoolError("the pool is closed; make a new Pool()")
        module, colon, name = handler.partition(":")
        if not (module and colon and name):
            raise InputError(f"a handler is named 'module:Class', not {handler!r}")
        request = {"handler": handler, "setup": dict(setup), "paths": list(paths)}
        options = replace(self._options, **(more or {}))
        handle = self._launcher.open(request, options)
        if isinstance(handle, TemplateFailure):
            return handle
        template = Template(handle, request, options, self._launcher)
        self._templates[:] = [*(t for t in self._templates if not t.closed), template]
        return template

    def joined_by(self, name: str, ranks: int, *, far: bool = False) -> Backend:
        """Return the backend of that name.

        For ``auto`` it is the first that so many ranks can have here. Raises InputError, and
        PoolError where it cannot be had. ``far``: not on processors.
        """
        if name != AUTO:
            chosen = backend(name)
            self._launcher.require(chosen)
            return chosen
        with contextlib.suppress(Unusable):
            if NCCL.fits(ranks, self._launcher.require(NCCL)):
                return NCCL
        try:
            self._launcher.require(CUDA_GLOO)
        except Unusable:
            if far:
                raise
            return GLOO
        return CUDA_GLOO

    def close(self) -> None:
        """End every process and close every template; does nothing the second time."""
        self._finalizer()


def _end(templates: list[Template], own: Launcher | None) -> None:
    for template in templates:
        template.close()
    if own is not None:
        own.close()
