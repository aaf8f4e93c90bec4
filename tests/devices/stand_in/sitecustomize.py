"""A stand-in for CUDA devices, in every interpreter that has this folder on its path.

Everything up to the driver is ours and real; in place of the driver, ``STAND_IN_DEVICES`` of them
are counted, NCCL is gloo, and the tensors of a rank are on the processor. Each rank adds a line to
the file ``STAND_IN_LOG``: its world's size, its number, its device, its backend.
"""

import importlib.util
import os
import sys
from pathlib import Path

_NAME = "aggverify.world.devices"


class _Finder:
    """Of one module, which is changed once it is loaded."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != _NAME:
            return None
        sys.meta_path.remove(cls)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def loaded(module):
            load(module)
            _change(module)

        spec.loader.exec_module = loaded
        return spec


def _change(devices):
    count = int(os.environ["STAND_IN_DEVICES"])

    def settle(place, backend, memory):
        mine = backend.device_of(place.rank, count)
        with Path(os.environ["STAND_IN_LOG"]).open("a") as file:
            file.write(f"{place.size} {place.rank} {mine} {backend.name}\n")
        return devices._settle_cpu(place, backend, memory)

    devices.DEVICES["cuda"] = devices.Device(
        settle=settle,
        joining=lambda place, backend: {"backend": "gloo"},
        seed=lambda: None,
        aspects=list,
        count=lambda: count,
        has=lambda group: True,
    )


sys.meta_path.insert(0, _Finder)
