"""What a candidate may alter beyond its return value: noticed after each job, and undone.

Watched are random numbers and the environment, which reducers of the corpus leave changed; all
modes of torch; and what a rank needs to go on: its streams, files, folder, signals and threads.
Nothing in the corpora or the examples touches limits, priorities, timers or hooks of the
interpreter, so those are not watched. Looking must be cheap, since it happens once per job and
rank.
"""

from __future__ import annotations

import _random
import contextlib
import ctypes
import os
import random
import signal
import sys
import threading

# Not signal.getsignal, which makes enumerations: 22 microseconds per job against 0.3.
from _signal import getsignal as plain_getsignal  # type: ignore[import-not-found]
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

_SIGNALS = tuple(
    getattr(signal, name)
    for name in (
        "SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGCHLD", "SIGPIPE", "SIGUSR1",
        "SIGUSR2", "SIGABRT", "SIGSEGV", "SIGFPE", "SIGXCPU",
    )
)  # fmt: skip
# 624 words and the position among them.
_MERSENNE_BYTES = 4 * 625
_SMALLEST_NORMAL = sys.float_info.min

PROCESS_GROUP = "default process group"

Look = Callable[[], Any]
Undo = Callable[[Any], object]
Aspect = tuple[str, Look, Undo | None]
"""A kind of state: its name, how to look at it, how to undo a change if that is possible."""


class Guard:
    """The state of this rank as it should be between jobs."""

    def __init__(self, of_device: Callable[[], Sequence[Aspect]] = list) -> None:
        self._of_device = of_device
        self._aspects = [*_aspects(), *of_device()]
        self._looks = [look for _, look, _ in self._aspects]
        self._expected = [look() for look in self._looks]

    def anew(self) -> Guard:
        """Return a guard that expects the state as it is now."""
        return Guard(self._of_device)

    def changes(self) -> tuple[list[str], bool]:
        """Names of what changed, undone where that is possible; True if something was not."""
        try:
            if [look() for look in self._looks] == self._expected:
                return [], False
        except Exception:  # such as a working directory that was removed: named below
            pass
        return self._undo()

    def _undo(self) -> tuple[list[str], bool]:
        changed, beyond_repair = [], False
        for (name, look, undo), expected in zip(self._aspects, self._expected, strict=True):
            if _same(look, expected):
                continue
            changed.append(name)
            if undo is not None:
                with contextlib.suppress(Exception):
                    undo(expected)
            # Some undoing fails silently (a closed file, a removed directory): look again.
            beyond_repair = beyond_repair or not _same(look, expected)
        return changed, beyond_repair


def _same(look: Look, expected: Any) -> bool:
    try:
        return bool(look() == expected)
    except Exception:
        return False


def _aspects() -> list[Aspect]:
    return [*_torch_aspects(), *_numpy_aspects(), *_python_aspects(), *_process_aspects()]


def _torch_aspects() -> list[Aspect]:
    import torch
    import torch.distributed as dist

    world = dist.group.WORLD
    generator = torch.default_generator
    kept = torch._GLOBAL_DEVICE_CONTEXT

    def default_device() -> Any:
        # torch.get_default_device makes a tensor there, which fails where there is no such device.
        mode = getattr(kept, "device_context", None)
        return mode and mode.device

    return [
        ("torch default dtype", torch.get_default_dtype, torch.set_default_dtype),
        ("torch default device", default_device, _set_default_device),
        ("torch grad mode", torch.is_grad_enabled, _set_grad),
        ("torch inference mode", torch.is_inference_mode_enabled, None),
        ("torch anomaly mode", torch.is_anomaly_enabled, _set_anomaly),
        ("torch autocast", lambda: torch.is_autocast_enabled("cpu"), _set_autocast),
        ("torch threads", torch.get_num_threads, torch.set_num_threads),
        (
            "torch deterministic algorithms",
            torch.get_deterministic_debug_mode,
            torch.set_deterministic_debug_mode,
        ),
        (
            "torch random state",
            lambda: random_bytes(generator.get_state()),
            lambda raw: generator.set_state(random_state(raw)),
        ),
        (PROCESS_GROUP, lambda: dist.group.WORLD is world, None),
    ]


def _set_default_device(device: Any) -> None:
    import torch

    torch.set_default_device(device)
    if device is None:  # torch 2.6's get_default_device fails on one that was taken back
        vars(torch._GLOBAL_DEVICE_CONTEXT).pop("device_context", None)


def _set_grad(on: bool) -> None:
    import torch

    torch._C._set_grad_enabled(on)


def _set_anomaly(on: bool) -> None:
    import torch

    torch.autograd.set_detect_anomaly(on)


def _set_autocast(on: bool) -> None:
    import torch

    torch.set_autocast_enabled("cpu", on)


def random_bytes(state: Any) -> bytes:
    """Return the state of one of torch's generators as bytes, to be compared."""
    raw: bytes = state.numpy().tobytes()
    return raw


def random_state(raw: bytes) -> Any:
    """Return the tensor that a generator takes, from its bytes."""
    import torch

    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)


def _numpy_aspects() -> list[Aspect]:
    try:
        import numpy as np
    except ImportError:
        return []
    numpy_random: Any = np.random
    whole = numpy_random.get_state(legacy=True)
    generator = numpy_random.get_bit_generator()
    # numpy publishes this address. Its get_state makes Python numbers: 26 microseconds against 0.1,
    # where all other looks together take 31, and a small case by itself 300.
    state = (ctypes.c_char * _MERSENNE_BYTES).from_address(generator.ctypes.state_address)

    def look() -> Any:
        return numpy_random.get_bit_generator() is generator, state.raw

    def undo(_: Any) -> None:
        numpy_random.set_bit_generator(generator)
        numpy_random.set_state(whole)

    return [("numpy random state", look, undo)]


def _python_aspects() -> list[Aspect]:
    out, err, inp = sys.stdout, sys.stderr, sys.stdin

    def streams() -> Any:
        return (sys.stdout, sys.stderr, sys.stdin) == (out, err, inp) and not (
            out.closed or err.closed
        )

    def restore_streams(_: Any) -> None:
        sys.stdout, sys.stderr, sys.stdin = out, err, inp

    return [
        _random_aspect(),
        ("sys.stdin, stdout or stderr", streams, restore_streams),
        ("threads", threading.active_count, None),
    ]


def _random_aspect() -> Aspect:
    # Draws the next number and rewinds: getstate makes 625 numbers to compare, 15 microseconds
    # against 3. ``_random``'s setstate, since ``random``'s goes through all of them in Python.
    whole = random.getstate()
    generator: Any = random.getstate.__self__  # type: ignore[attr-defined]
    rewind = partial(_random.Random.setstate, generator, whole[1])

    def draw() -> Any:
        return generator.getrandbits(128), generator.gauss_next

    expected = draw()
    rewind()

    def look() -> Any:
        found = draw()
        if found == expected:
            rewind()
        return found

    return "random state", look, lambda _: random.setstate(whole)


def setter(owner: Any, name: str) -> Undo:
    """Return a function that sets an attribute to what was expected."""
    return lambda expected: setattr(owner, name, expected)


def _process_aspects() -> list[Aspect]:
    saved = [os.dup(fd) for fd in range(3)]

    def files() -> Any:
        return [(s.st_dev, s.st_ino) for s in map(os.fstat, range(3))]

    def restore_files(_: Any) -> None:
        for fd, copy in enumerate(saved):
            os.dup2(copy, fd)

    def handlers() -> Any:
        return [plain_getsignal(number) for number in _SIGNALS]

    def restore_handlers(expected: Any) -> None:
        for number, handler in zip(_SIGNALS, expected, strict=True):
            if handler is not None:
                signal.signal(number, handler)

    return [
        ("environment", _environment, _set_environment),
        ("working directory", os.getcwd, os.chdir),
        ("open files 0, 1 or 2", files, restore_files),
        ("signal handlers", handlers, restore_handlers),
        # Flushing subnormals to zero is a mode of the processor that torch can set, not get.
        ("subnormal numbers", lambda: _SMALLEST_NORMAL / 2 > 0.0, _keep_subnormals),
    ]


_BY_TORCH = b"TORCHINDUCTOR_CACHE_DIR"
"""Set by torch itself, for a functional collective or a compiled function."""


def _environment() -> Any:
    # The mapping below os.environ: a copy of os.environb takes 12 microseconds against 0.1.
    found = dict(os.environ.__dict__["_data"])
    found.pop(_BY_TORCH, None)
    return found


def _set_environment(expected: dict[bytes, bytes]) -> None:
    for key in set(os.environb) - {*expected, _BY_TORCH}:
        del os.environb[key]
    os.environb.update(expected)


def _keep_subnormals(_: Any) -> None:
    import torch

    torch.set_flush_denormal(False)
