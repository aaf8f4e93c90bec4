"""What depends on the kind of device a rank's tensors are on: limits, seeds, state, availability.

One entry per kind. No process that forks calls CUDA: all but :func:`usable` runs in ranks.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from aggverify.world.backends import Backend, DeviceKind, RankPlace
from aggverify.world.forking import fork
from aggverify.world.rendezvous import LOOPBACK_INTERFACE, address_of
from aggverify.world.state import Aspect, random_bytes, random_state, setter


@dataclass(frozen=True, slots=True)
class Device:
    """The rank's side of a kind of device.

    ``settle``: choose it and bound the rank's memory, in bytes beyond what it has. ``joining``:
    arguments of ``init_process_group``. ``seed``: its random numbers. ``aspects``: the global
    state it adds to what is watched. ``count``: how many there are, asked in a process that forks
    nothing; ``has``: whether torch has what joins ranks there.
    """

    settle: Callable[[RankPlace, Backend, int], RankPlace]
    joining: Callable[[RankPlace, Backend], dict[str, Any]]
    seed: Callable[[], None]
    aspects: Callable[[], list[Aspect]]
    count: Callable[[], int]
    has: Callable[[str], bool]


def _settle_cpu(place: RankPlace, backend: Backend, memory: int) -> RankPlace:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        now = int(file.read().split()[0]) * resource.getpagesize()
    limit(resource.RLIMIT_AS, now + memory)
    return place


def _settle_cuda(place: RankPlace, backend: Backend, memory: int) -> RankPlace:
    import torch

    mine = backend.device_of(place.rank, torch.cuda.device_count())
    torch.cuda.set_device(mine)
    torch.cuda.init()
    # Sums by atomic additions come in any order: the same bits again are asked of every reducer.
    # Not torch.use_deterministic_algorithms, which imports the compiler: seconds for each rank.
    torch.set_deterministic_debug_mode("warn")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    # Not address space, of which CUDA reserves as much as all devices and the host have together.
    limit(resource.RLIMIT_DATA, written_to() + memory)
    return replace(place, device=mine)


def written_to() -> int:
    """Bytes this process may write to, shared pages and address space merely reserved apart."""
    with open("/proc/self/status") as file:  # noqa: PTH123
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmData:"))


def limit(which: int, wanted: int) -> None:
    """Set a soft limit of this process, as far as the hard one allows."""
    _, hard = resource.getrlimit(which)
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(which, (soft, hard))


def _join_cpu(place: RankPlace, backend: Backend) -> dict[str, Any]:
    return {"backend": backend.group or backend.name}


def _join_cuda(place: RankPlace, backend: Backend) -> dict[str, Any]:
    import torch

    arguments = _join_cpu(place, backend)
    if backend.shares:
        return arguments
    # Bound to its device at once: the backend would otherwise guess, and hang on a wrong guess.
    return arguments | {"device_id": torch.device(place.device)}


def _seed_cuda() -> None:
    import torch

    torch.cuda.manual_seed(0)


def _cuda_aspects() -> list[Aspect]:
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    flags: list[tuple[str, Any, str]] = [
        ("CUDA matmul in TF32", matmul, "allow_tf32"),
        ("cuDNN in TF32", cudnn, "allow_tf32"),
        ("cuDNN deterministic", cudnn, "deterministic"),
        ("cuDNN benchmark", cudnn, "benchmark"),
    ]
    return [
        # After a kernel's assertion nothing more runs in the process, nor is that reported at once.
        ("CUDA context", torch.cuda.synchronize, None),
        ("CUDA device", torch.cuda.current_device, torch.cuda.set_device),
        (
            "CUDA random state",
            lambda: random_bytes(torch.cuda.get_rng_state()),
            lambda raw: torch.cuda.set_rng_state(random_state(raw)),
        ),
        (
            "CUDA autocast",
            lambda: torch.is_autocast_enabled("cuda"),
            lambda on: torch.set_autocast_enabled("cuda", on),
        ),
        *((name, _getter(owner, key), setter(owner, key)) for name, owner, key in flags),
    ]


def _getter(owner: Any, name: str) -> Callable[[], Any]:
    return lambda: getattr(owner, name)


def _has(group: str) -> bool:
    import torch.distributed as dist

    return dist.is_available() and dist.is_backend_available(group)


def _count_cuda() -> int:
    import torch

    return torch.cuda.device_count()


DEVICES: dict[DeviceKind, Device] = {
    "cpu": Device(_settle_cpu, _join_cpu, lambda: None, list, lambda: 0, _has),
    "cuda": Device(_settle_cuda, _join_cuda, _seed_cuda, _cuda_aspects, _count_cuda, _has),
}


@dataclass(frozen=True, slots=True)
class Usable:
    """How many devices a backend has here, 0 for one on processors; or why it cannot be had."""

    devices: int = 0
    why_not: str | None = None


def usable(backend: Backend) -> Usable:
    """Whether ranks can be joined by this backend here."""
    import torch

    device, group = DEVICES[backend.device], backend.group or backend.name
    if not device.has(group):
        why = f"torch {torch.__version__} was built without the {group} backend"
        return Usable(why_not=why)
    if not loops_back():
        why = "ranks talk over the loopback interface, which is not up here: ip link set lo up"
        return Usable(why_not=why)
    devices = _counted(device.count) if backend.is_far else 0
    if backend.is_far and not devices:
        why = f"the {backend.name} backend needs a CUDA device, and torch finds none here"
        return Usable(why_not=why)
    return Usable(devices)


def loops_back() -> bool:
    """Whether the interface that backends are bound to has an address."""
    return address_of(LOOPBACK_INTERFACE) is not None


def _counted(count: Callable[[], int]) -> int:
    """Count in a child, since a process that has asked the driver can no longer fork ranks."""
    pid = fork()
    if pid == 0:
        found = 0
        try:
            found = count()
        finally:
            os._exit(min(found, 255))
    _, status = os.waitpid(pid, 0)
    return max(0, os.waitstatus_to_exitcode(status))
