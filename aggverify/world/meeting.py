"""Where processes that torchrun or srun has started find each other, and ranks of theirs later.

All that is known of each other in the beginning is the address of torch's store. Host 0 leaves
there where the driver listens, and a ticket for each.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import secrets
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from aggverify.errors import InputError

LOOPBACK, LOOPBACK_INTERFACE = "127.0.0.1", "lo"
PATIENCE = 120.0
"""Seconds that are waited for the others: a launcher starts all of them at about the same time."""
_INTERFACE = "GLOO_SOCKET_IFNAME"
_SIOCGIFADDR = 0x8915
_TORCHRUN = {"number": "RANK", "size": "WORLD_SIZE"}
_SRUN = {"number": "SLURM_PROCID", "size": "SLURM_STEP_NUM_TASKS"}


@dataclass(frozen=True, slots=True)
class Seat:
    """This process among those that were launched together, and where their store is.

    ``serves``: whether the store is in the first of them, not in the launcher. ``restarts``: how
    often all were started again, of at most so many times.
    """

    number: int
    size: int
    address: str
    port: int
    serves: bool = False
    restarts: int = 0
    most_restarts: int = 0

    @property
    def part(self) -> str:
        """Of the store, which may have been there before this start."""
        return f"aggverify/{self.restarts}"

    def store(self) -> Any:
        """Torch's store, of which nothing is kept that a rank could take an advantage of."""
        from torch._C._distributed_c10d import TCPStore

        return TCPStore(
            self.address,
            self.port,
            is_master=self.serves and self.number == 0,
            wait_for_workers=False,
            timeout=datetime.timedelta(seconds=PATIENCE),
        )


def seat(environment: Mapping[str, str]) -> Seat | None:
    """Of this process, None where nobody has launched several; raises InputError where it is not
    said where their store is."""
    names = _TORCHRUN if "TORCHELASTIC_RUN_ID" in environment else _SRUN
    number, size = (environment.get(names[key], "") for key in ("number", "size"))
    if not (number.isdigit() and size.isdigit() and int(number) < int(size)):
        return None
    if names is _SRUN and int(size) == 1:
        return None
    address, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    if not (address and port.isdigit()):
        raise InputError(
            f"srun has started {size} of this, which need MASTER_ADDR (the machine of the first) "
            "and MASTER_PORT (a free port there) to find each other: export both before srun"
        )
    restarts, most = (
        int(count) if (count := environment.get(name, "")).isdigit() else 0
        for name in ("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS")
    )
    return Seat(
        int(number),
        int(size),
        address,
        int(port),
        environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
        restarts,
        most,
    )


class Meeting(NamedTuple):
    """Where the ranks of one world meet: a part of the store, and an interface to talk over."""

    address: str
    port: int
    part: str
    interface: str

    def joined(self) -> Any:
        """A store of theirs alone; the backend is bound to the interface."""
        from torch._C._distributed_c10d import PrefixStore

        os.environ[_INTERFACE] = self.interface
        return PrefixStore(self.part, Seat(1, 2, self.address, self.port).store())


@dataclass(frozen=True, slots=True)
class Met:
    """What all have agreed upon: where the driver is, a ticket for each, and their machines."""

    address: str
    port: int
    tickets: tuple[str, ...]
    machines: int


def meet(mine: Seat, store: Any) -> tuple[Met, socket.socket | None]:
    """Find the others; the first of them also opens the door that all go to. InputError where it
    has no address that others reach."""
    store.set(f"{mine.part}/machine/{mine.number}", machine())
    if mine.number == 0:
        every = {store.get(f"{mine.part}/machine/{n}") for n in range(mine.size)}
        try:
            address = LOOPBACK if len(every) == 1 else _reachable(mine)
        except InputError as error:
            store.set(f"{mine.part}/driver", json.dumps({"error": str(error)}))
            raise
        door = socket.create_server((address, 0), backlog=512)
        tickets = [secrets.token_hex(32) for _ in range(mine.size)]
        said = Met(address, door.getsockname()[1], tuple(tickets), len(every))
        store.set(f"{mine.part}/driver", json.dumps(_plain(said)))
        return said, door
    told = json.loads(store.get(f"{mine.part}/driver"))
    if "error" in told:
        raise InputError(told["error"])
    return Met(told["address"], told["port"], tuple(told["tickets"]), told["machines"]), None


def _plain(met: Met) -> dict[str, Any]:
    return {name: getattr(met, name) for name in ("address", "port", "tickets", "machines")}


def machine() -> str:
    """The same text for those that can talk over one loopback interface."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/net')}"  # noqa: PTH115


def _reachable(mine: Seat) -> str:
    """An address of this machine that others have a way to: of the interface that the backend is
    told to use, else of the one that leads to the store."""
    named = os.environ.get(_INTERFACE, "")
    if named and (address := address_of(named)) is not None:
        return address
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.connect((mine.address, mine.port))  # sends nothing
        found: str = probe.getsockname()[0]
        if not found.startswith("127."):
            return found
    raise InputError(
        f"{mine.address} (MASTER_ADDR) is no address by which other machines reach this one: set "
        f"{_INTERFACE} to the network interface that they share"
    )


def address_of(interface: str) -> str | None:
    """Its IPv4 address."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        asked = struct.pack("256s", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, asked)[20:24])
    return None


def interface_of(address: str) -> str:
    """The one with that address."""
    names = (name for _, name in socket.if_nameindex())
    return next((name for name in names if address_of(name) == address), LOOPBACK_INTERFACE)


def dial(met: Met, ticket: str) -> socket.socket:
    """A connection to the driver, which knows by the ticket what it is for."""
    connection = socket.create_connection((met.address, met.port), PATIENCE)
    connection.settimeout(None)
    alive(connection)
    connection.sendall(ticket.encode())
    return connection


def alive(connection: socket.socket) -> None:
    """Send at once what there is to send, and notice where the other machine is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 6)):
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
