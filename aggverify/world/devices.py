"""What depends on the kind of device a rank's tensors are on: limits, seeds, state, availability.

One entry per kind. No process that forks calls CUDA: all but :func:`unusable` runs in ranks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aggverify.world.backends import Backend, DeviceKind, Place
from aggverify.world.forking import fork
from aggverify.world.state import Aspect, random_bytes, random_state, setter

_SIOCGIFADDR = 0x8915


@dataclass(frozen=True, slots=True)
class Device:
    """The rank's side of a kind of device.

    ``settle``: choose it and bound the rank's memory, in bytes beyond what it has. ``joining``:
    more arguments of ``init_process_group``. ``seed``: its random numbers. ``aspects``: the global
    state it adds to what is watched.
    """

    settle: Callable[[Place, int], None]
    joining: Callable[[Place], dict[str, Any]]
    seed: Callable[[], None]
    aspects: Callable[[], list[Aspect]]


def _settle_cpu(place: Place, memory: int) -> None:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        now = int(file.read().split()[0]) * resource.getpagesize()
    limit(resource.RLIMIT_AS, now + memory)


def _settle_cuda(place: Place, memory: int) -> None:
    import torch

    count = torch.cuda.device_count()
    if place.rank >= count:
        raise RuntimeError(f"rank {place.rank} has no CUDA device of its own: there are {count}")
    torch.cuda.set_device(place.device)
    torch.cuda.init()
    # Not address space, of which CUDA reserves as much as all devices and the host have together.
    limit(resource.RLIMIT_DATA, written_to() + memory)


def written_to() -> int:
    """Bytes this process may write to, shared pages and address space merely reserved apart."""
    with open("/proc/self/status") as file:  # noqa: PTH123
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmData:"))


def limit(which: int, wanted: int) -> None:
    """Set a soft limit of this process, as far as the hard one allows."""
    _, hard = resource.getrlimit(which)
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(which, (soft, hard))


def _join_cuda(place: Place) -> dict[str, Any]:
    import torch

    # Bound to its device at once: the backend would otherwise guess, and hang on a wrong guess.
    return {"device_id": torch.device(place.device)}


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
        ("CUDA device", torch.cuda.current_device, torch.cuda.set_device),
        (
            "CUDA random state",
            lambda: random_bytes(torch.cuda.get_rng_state()),
            lambda raw: torch.cuda.set_rng_state(random_state(raw)),
        ),
        *((name, _getter(owner, key), setter(owner, key)) for name, owner, key in flags),
    ]


def _getter(owner: Any, name: str) -> Callable[[], Any]:
    return lambda: getattr(owner, name)


DEVICES: Mapping[DeviceKind, Device] = {
    "cpu": Device(_settle_cpu, lambda _: {}, lambda: None, list),
    "cuda": Device(_settle_cuda, _join_cuda, _seed_cuda, _cuda_aspects),
}


def unusable(backend: Backend) -> str | None:
    """Why ranks cannot be joined by this backend here, None when they can."""
    import torch
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_backend_available(backend.name):
        return f"torch {torch.__version__} was built without the {backend.name} backend"
    if not loops_back():
        return "ranks talk over the loopback interface, which is not up here: ip link set lo up"
    if backend.device == "cuda" and not _cuda_devices():
        return f"the {backend.name} backend needs a CUDA device, and torch finds none here"
    return None


def loops_back() -> bool:
    """Whether the interface that backends are bound to has an address."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", b"lo"))
        return True
    return False


def _cuda_devices() -> int:
    """Counted by a child, since a process that has asked the driver can no longer fork ranks."""
    pid = fork()
    if pid == 0:
        count = 0
        try:
            import torch

            count = torch.cuda.device_count()
        finally:
            os._exit(min(count, 255))
    _, status = os.waitpid(pid, 0)
    return max(0, os.waitstatus_to_exitcode(status))
