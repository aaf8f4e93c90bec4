"""A template process that has constructed its handler, as its parent holds it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from aggverify.world import answers, stacks, wire
from aggverify.world.evidence import threads_text
from aggverify.world.faults import TemplateFailure
from aggverify.world.in_flight import WorldKey
from aggverify.world.launching import Ending, NoRoom
from aggverify.world.link import CapturedOutput, Link, open_link
from aggverify.world.process_inspector import HERE, LocalInspector
from aggverify.world.rendezvous import Rendezvous


@dataclass(slots=True)
class LocalTemplate:
    """A ``TemplateHandle`` on this machine."""

    connection: socket.socket
    output: CapturedOutput
    recorder: int
    pid: int
    number: int
    """Its pid as the launcher sees it, which differs from ours where both are in a sandbox."""
    description: dict[str, Any]
    launched_by: str
    """The mark of its launcher, the only one that knows its ``number``."""
    lacks_threads: bool = False
    """Whether the import has left threads that ranks forked from it do without."""
    _decoder: wire.Decoder = field(default_factory=lambda: wire.Decoder(answers.SMALL))

    @property
    def inspector(self) -> LocalInspector:
        """Shows the processes of its ranks."""
        return LocalInspector(self.pid)

    def hung(self, kind: Literal["runaway", "blocked"], message: str) -> TemplateFailure:
        """Return the failure of an import that does not end, with where it is."""
        found = stacks.collect({0: (self.pid, self.recorder)}, lambda pid: HERE.ask(pid, wake=True))
        text = threads_text(found.get(0, ()))
        return TemplateFailure(kind, message, text, self.output.drain())

    def watched(self) -> Mapping[int, Callable[[], Sequence[Ending] | None]]:
        """Files to poll, with what reads each: its messages, None where nothing more will come."""
        return {self.connection.fileno(): self._endings, self.output.fd: self._printed}

    def _endings(self) -> Sequence[Ending]:
        data = self.connection.recv(1 << 16)
        if not data:
            raise ConnectionResetError("the template process ended")
        try:
            return [header for header, _ in self._decoder.feed(data)]
        except wire.WireError as error:
            raise ConnectionResetError(f"the template process sent no message: {error}") from None

    def _printed(self) -> Sequence[Ending] | None:
        return () if self.output.read() else None

    def start(
        self,
        world: int,
        key: WorldKey,
        memory: int,
        *,
        alone: bool,
        ranks: Sequence[int] | None = None,
        rendezvous: Rendezvous | None = None,
    ) -> list[Link]:
        """Have all ranks of a world forked, or only ``ranks``, which then need a ``rendezvous``.

        Raises NoRoom, and OSError where the template process is gone.
        """
        mine = range(key.size) if ranks is None else ranks
        links: list[Link] = []
        handed: list[tuple[int, int, int]] = []
        request = {
            "op": "world",
            "world": world,
            "size": key.size,
            "ranks": list(mine),
            "backend": key.backend.name,
            "alone": alone,
            "memory": memory,
            "rendezvous": rendezvous,
        }
        try:
            try:
                for rank in mine:
                    link, fds = open_link(rank)
                    links.append(link)
                    handed.append(fds)
            except OSError as error:  # no more files: not the template's end
                raise NoRoom(error.strerror) from None
            wire.send(self.connection, request, fds=[fd for fds in handed for fd in fds])
        except BaseException:
            for link in links:
                link.close()
            raise
        finally:
            # Not the recorder: it is one file, which the link keeps open and reads.
            for connection, output, _ in handed:
                os.close(connection)
                os.close(output)
        return links

    def end(self, world: int) -> None:
        """Have its ranks ended."""
        wire.send(self.connection, {"op": "kill", "world": world})

    def close(self) -> None:
        """Let go of connection and files."""
        self.connection.close()
        os.close(self.output.fd)
        os.close(self.recorder)
