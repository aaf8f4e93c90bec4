"""What ranks are joined by and where their tensors are: data, with all that depends on it.

Imports no torch: the parent chooses, and a process that forks ranks must not touch a device. What
a rank does on its device is in ``devices``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from aggverify.errors import InputError

DeviceKind = Literal["cpu", "cuda"]
KINDS: tuple[DeviceKind, ...] = get_args(DeviceKind)


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend of torch.distributed with the kind of device its tensors are on.

    ``sleeps_in_collectives``: a rank that waits for others sleeps, so that threads in /proc show
    what is blocked and processor time what runs away; otherwise only the limit on silence does.
    ``ticking``: names of its threads that wake by themselves, however long nothing happens.
    ``environment``: variables of the launcher, so of all ranks. ``own``: variables of templates,
    and ranks, of this backend alone, set before the import. ``transport``: what carries a
    collective from one rank to another, for the record. ``group``: the argument of
    ``init_process_group``, where that is not the name. ``shares``: whether ranks may have one
    device together.
    """

    name: str
    device: DeviceKind
    sleeps_in_collectives: bool
    ticking: frozenset[bytes] = frozenset()
    environment: tuple[tuple[str, str], ...] = ()
    own: tuple[tuple[str, str], ...] = ()
    transport: str = "tcp"
    group: str = ""
    shares: bool = True

    def __hash__(self) -> int:
        return hash(self.name)  # each job is queued by it

    @property
    def is_far(self) -> bool:
        """Whether tensors are on a device other than the processor."""
        return self.device != "cpu"

    def device_of(self, rank: int, devices: int) -> str:
        """Return the device of one rank, as ``torch.device`` reads it, where there are so many.

        Raises RuntimeError where it has none.
        """
        if not self.is_far:
            return "cpu"
        if not devices or not (self.shares or rank < devices):
            raise RuntimeError(f"rank {rank} has no own device: there are {devices}")
        return f"{self.device}:{rank % devices}"

    def fits(self, ranks: int, devices: int) -> bool:
        """Whether a world of so many ranks has devices enough."""
        return not self.is_far or (devices > 0 and (self.shares or ranks <= devices))


# Devices are hidden: where there are some, the compiler initialises the driver even for code of the
# processor, and that fails below the limit on address space.
GLOO = Backend(
    "gloo",
    "cpu",
    True,
    ticking=frozenset({b"gloo_tcp_loop"}),
    environment=(("GLOO_SOCKET_IFNAME", "lo"),),
    own=(("CUDA_VISIBLE_DEVICES", "-1"),),
)
_CUDA = (("PYTORCH_NVML_BASED_CUDA_CHECK", "1"), ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"))
# By the first variable torch.cuda.is_available(), which many modules call when imported, does not
# initialise the driver, in a process that forks. Deterministic algorithms need the second one.
# Ranks do not sleep in collectives, since a host thread that waits for the device spins.
NCCL = Backend(
    "nccl",
    "cuda",
    False,
    transport="peer to peer, shared memory or tcp",
    environment=(("NCCL_SOCKET_IFNAME", "lo"), *_CUDA),
    shares=False,
)
CUDA_GLOO = Backend(
    "cuda+gloo",
    "cuda",
    False,
    transport="tcp, staged through the processor's memory",
    environment=(*GLOO.environment, *_CUDA),
    group="gloo",
)
BACKENDS: Mapping[str, Backend] = {backend.name: backend for backend in (GLOO, NCCL, CUDA_GLOO)}
AUTO = "auto"
"""The first of NCCL, CUDA_GLOO and GLOO that a world of the wanted size can have here."""


def backend(name: str) -> Backend:
    """Return the backend of that name; raises InputError."""
    if name not in BACKENDS:
        raise InputError(f"no backend {name!r}; there are {', '.join(BACKENDS)}")
    return BACKENDS[name]


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where a rank stands: its number, how many there are, and the device of all its tensors.

    It settles on the device itself.
    """

    rank: int
    size: int
    device: str = "cpu"
