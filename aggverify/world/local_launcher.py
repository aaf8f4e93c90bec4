"""Where worlds on this machine come from: one fork server, replaced should it die."""

from __future__ import annotations

import contextlib
from typing import Any

from aggverify.world.backends import Backend
from aggverify.world.faults import NO_EXCESS, PoolError, ResourceOveruse, TemplateFailure
from aggverify.world.launcher import ForkServer
from aggverify.world.local_template import LocalTemplate
from aggverify.world.options import MAX_RANKS, Options
from aggverify.world.sandbox import Sandbox


class LocalLauncher:
    """The current fork server, replaced should it die."""

    most, carried, replay_log = MAX_RANKS, "", None

    def __init__(self, inside: Sandbox | None = None, preload: str = "") -> None:
        self.inside = inside
        """The sandbox that all its processes are in."""
        self._preload = preload
        self._fork_server = ForkServer(inside, preload)
        self._closed = False

    @property
    def ready(self) -> bool:
        """Whether nothing is to be waited for; False while it imports torch."""
        return self._fork_server.gone or self._fork_server.ready

    def open(
        self,
        request: dict[str, Any],
        options: Options,
        begun: LocalTemplate | None = None,
    ) -> LocalTemplate | TemplateFailure:
        """Open a template process and return it once its handler is constructed.

        ``begun``: the one that has begun to, for the same request.
        """
        server = self._current()
        if begun is not None and begun.launched_by != server.mark:  # it is gone
            begun.close()
            begun = None
        return server.finish(begun or server.begin(request, options), request, options)

    def begin(self, request: dict[str, Any], options: Options) -> LocalTemplate:
        """Fork a template process, which constructs its handler while the caller goes on."""
        return self._current().begin(request, options)

    def require(self, backend: Backend) -> int:
        """Return how many devices it has; raises Unusable where it cannot join ranks."""
        return self._current().require(backend)

    def _current(self) -> ForkServer:
        if self._closed:
            raise PoolError("the pool is closed; make a new Pool()")
        if self._fork_server.gone:
            self._fork_server.close()
            self._fork_server = ForkServer(self.inside, self._preload)
        return self._fork_server

    def excess(self, template: LocalTemplate) -> ResourceOveruse:
        """Return what a template was ended for."""
        if template.launched_by == self._fork_server.mark:
            with contextlib.suppress(PoolError):  # the launcher is gone as well: it is not known
                return self._fork_server.excess(template.number)
        return NO_EXCESS

    def kill(self, template: LocalTemplate) -> None:
        """End a template process and its ranks."""
        if not self._closed and template.launched_by == self._fork_server.mark:
            self._fork_server.kill(template.number)

    def close(self) -> None:
        """End every process."""
        self._closed = True
        self._fork_server.close()
