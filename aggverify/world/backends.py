"""What ranks are joined by and where their tensors are: data, with all that depends on it.

Imports no torch: the parent chooses, and a process that forks ranks must not touch a device. What
a rank does on its device is in ``devices``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from aggverify.errors import InputError

DeviceKind = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend of torch.distributed with the kind of device its tensors are on.

    ``sleeps_in_collectives``: a rank that waits for others sleeps, so that threads in /proc tell
    what is blocked and processor time what runs away; otherwise only the limit on silence does.
    ``ticking``: names of its threads that wake by themselves, however long nothing happens.
    ``environment``: variables of the processes ranks come from. ``transport``: what carries a
    collective from one rank to another, for the record.
    """

    name: str
    device: DeviceKind
    sleeps_in_collectives: bool
    ticking: frozenset[bytes] = frozenset()
    environment: tuple[tuple[str, str], ...] = ()
    transport: str = "tcp"

    def device_of(self, rank: int) -> str:
        """The device of one rank, as ``torch.device`` reads it: one of its own if not the CPU."""
        return "cpu" if self.device == "cpu" else f"{self.device}:{rank}"


GLOO = Backend("gloo", "cpu", True, frozenset({b"gloo_tcp_loop"}), (("GLOO_SOCKET_IFNAME", "lo"),))
# A host thread that waits for the device spins. The second variable has torch.cuda.is_available(),
# which many modules call when imported, ask without initialising the driver in a process that
# forks.
NCCL = Backend(
    "nccl",
    "cuda",
    False,
    transport="peer to peer, shared memory or tcp",
    environment=(("NCCL_SOCKET_IFNAME", "lo"), ("PYTORCH_NVML_BASED_CUDA_CHECK", "1")),
)
BACKENDS: Mapping[str, Backend] = {backend.name: backend for backend in (GLOO, NCCL)}


def backend(name: str) -> Backend:
    """The backend of that name; raises InputError."""
    if name not in BACKENDS:
        raise InputError(f"no backend {name!r}; there are {', '.join(BACKENDS)}")
    return BACKENDS[name]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank stands: its number, how many there are, the device of all its tensors."""

    rank: int
    size: int
    device: str
