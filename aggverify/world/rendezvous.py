"""Which of the processes that torchrun or srun has started this one is.

Also where their store is, and by which network interface their ranks talk.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from aggverify.errors import InputError

LOOPBACK_INTERFACE = "lo"
PATIENCE = 120.0
"""Seconds that are waited for the others: a launcher starts all of them at about the same time."""
_INTERFACE = "GLOO_SOCKET_IFNAME"
_SIOCGIFADDR = 0x8915
_TORCHRUN = {"number": "RANK", "size": "WORLD_SIZE"}
_SRUN = {"number": "SLURM_PROCID", "size": "SLURM_STEP_NUM_TASKS"}


@dataclass(frozen=True, slots=True)
class RankInfo:
    """The place of this process among those that were launched together, and where their store is.

    ``serves``: whether the first process has the store, not torchrun. ``restarts``: how often
    torchrun has started all of them again, at most ``most_restarts`` times.
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
        """Prefix of our keys: the store may have keys of an earlier start of the same run."""
        return f"aggverify/{self.restarts}"

    def store(self) -> Any:
        """Connect to the store."""
        from torch._C._distributed_c10d import TCPStore

        return TCPStore(
            self.address,
            self.port,
            is_master=self.serves and self.number == 0,
            wait_for_workers=False,
            timeout=datetime.timedelta(seconds=PATIENCE),
        )


def rank_info(environment: Mapping[str, str]) -> RankInfo | None:
    """Return the place of this process, None where no launcher has started several.

    Raises InputError where it is not declared where their store is.
    """
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
    return RankInfo(
        int(number),
        int(size),
        address,
        int(port),
        environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
        restarts,
        most,
    )


class Rendezvous(NamedTuple):
    """Where the ranks of one world meet: a part of the store, and an interface to talk over."""

    address: str
    port: int
    part: str
    interface: str

    def joined(self) -> Any:
        """Bind the backend to the interface, and connect to this world's part of the store."""
        from torch._C._distributed_c10d import PrefixStore

        os.environ[_INTERFACE] = self.interface
        return PrefixStore(self.part, RankInfo(1, 2, self.address, self.port).store())


def machine() -> str:
    """Return a text that is the same for those that can talk over one loopback interface."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/net')}"  # noqa: PTH115


def interface(info: RankInfo) -> str:
    """Return the network interface by which other machines reach this one.

    It is what the backend is configured to use, else the one that leads to the store; "" where that
    is the loopback interface.
    """
    if named := os.environ.get(_INTERFACE, ""):
        return named
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.connect((info.address, info.port))  # sends nothing
        found: str = probe.getsockname()[0]
        names = (name for _, name in socket.if_nameindex())
        if not found.startswith("127."):
            return next((name for name in names if address_of(name) == found), "")
    return ""


def unreachable(info: RankInfo) -> str:
    """Return the sentence for a person where there is no such interface."""
    return (
        f"{info.address} (MASTER_ADDR) is no address by which other machines reach this one: set "
        f"{_INTERFACE} to the network interface that they share"
    )


def address_of(interface: str) -> str | None:
    """Return the IPv4 address of a network interface, None where it has none."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        asked = struct.pack("256s", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, asked)[20:24])
    return None
