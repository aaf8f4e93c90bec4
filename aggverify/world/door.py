"""The one port that the driver of several machines' ranks listens at.

Whoever comes says a ticket first, of which each is good for one connection. All others are shown
out, without an answer.
"""

from __future__ import annotations

import hmac
import secrets
import select
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from aggverify.world.faults import PoolError
from aggverify.world.meeting import PATIENCE, alive

_TICKET = 64
_MOST_STRANGERS = 64
_TURN = 0.1


@dataclass(slots=True)
class Door:
    """Listens; not safe for use by several threads."""

    listening: socket.socket
    _strangers: dict[int, tuple[socket.socket, bytes]] = field(default_factory=dict)

    def ticket(self) -> str:
        """A new one."""
        return secrets.token_hex(_TICKET // 2)

    def take(self, tickets: Iterable[str], turn: Callable[[], None]) -> list[socket.socket]:
        """The connections of those who have these, in that order; raises PoolError where they do
        not come."""
        wanted = list(tickets)
        here: dict[str, socket.socket] = {}
        ends = time.monotonic() + PATIENCE
        try:
            while len(here) < len(wanted):
                turn()
                if time.monotonic() > ends:
                    missing = [n for n, each in enumerate(wanted) if each not in here]
                    raise PoolError(
                        f"{len(missing)} of {len(wanted)} connections have not come in "
                        f"{PATIENCE:g} s"
                    )
                self._listen(wanted, here)
        except BaseException:
            for connection in here.values():
                connection.close()
            raise
        return [here[each] for each in wanted]

    def _listen(self, wanted: list[str], here: dict[str, socket.socket]) -> None:
        readable, _, _ = select.select(
            [self.listening, *(sock for sock, _ in self._strangers.values())], [], [], _TURN
        )
        for sock in readable:
            if sock is self.listening:
                self._comes_in()
            elif (ticket := self._says(sock)) is not None:
                known = [each for each in wanted if hmac.compare_digest(each.encode(), ticket)]
                if known and known[0] not in here:
                    sock.setblocking(True)
                    alive(sock)
                    here[known[0]] = sock
                else:
                    sock.close()

    def _comes_in(self) -> None:
        sock, _ = self.listening.accept()
        sock.setblocking(False)
        if len(self._strangers) >= _MOST_STRANGERS:  # who says nothing makes room for others
            first = next(iter(self._strangers))
            self._strangers.pop(first)[0].close()
        self._strangers[sock.fileno()] = sock, b""

    def _says(self, sock: socket.socket) -> bytes | None:
        """The ticket of a stranger, who is one no longer; None while it is not complete."""
        fd = sock.fileno()
        said = self._strangers[fd][1]
        try:
            data = sock.recv(_TICKET - len(said))
        except OSError:
            data = b""
        said += data
        if data and len(said) < _TICKET:
            self._strangers[fd] = sock, said
            return None
        del self._strangers[fd]
        return said

    def close(self) -> None:
        """Let nobody in any more."""
        self.listening.close()
        for sock, _ in self._strangers.values():
            sock.close()
        self._strangers.clear()
