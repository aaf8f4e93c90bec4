"""A rank that is started, not forked: with its own interpreter, hash seed, imports and threads.

Ranks are forks of one interpreter otherwise, and agree on what trainers' ranks do not: the order of
a set, what ``hash`` returns, what an import has drawn. The process is forked all the same, so that
it is watched and ended like any other, and becomes the new interpreter at once.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import asdict
from typing import Any, NoReturn

from aggverify.world import forking, interpreter, linux, rank, trace
from aggverify.world.backends import RankPlace, backend
from aggverify.world.flight_recorder import Writer

_LEFT_TO_TORCH = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def become(
    place: RankPlace, joined_by: str, handed: rank.Handed, request: dict[str, Any]
) -> NoReturn:
    """Go on as a new interpreter that is this rank."""
    handover = {
        "place": asdict(place),
        "backend": joined_by,
        "handed": asdict(handed),
        "request": request,
        "sys_path": sys.path,
    }
    file = os.memfd_create("launched")
    os.write(file, json.dumps(handover).encode())
    for fd in (file, handed.connection, handed.output, handed.recorder, handed.store):
        os.set_inheritable(fd, True)
    # A failure until the code under test is imported is no fault of that code.
    Writer(handed.recorder).own(begins=True)
    os.execve(sys.executable, interpreter.command("launched", file), _environment(place))


def _environment(place: RankPlace) -> dict[str, str]:
    """Return the environment of a rank: what torchrun sets; how many threads is torch's choice.

    The hash seed differs between ranks, not between runs.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_TO_TORCH}
    number, size = str(place.rank), str(place.size)
    return kept | {
        "PYTHONHASHSEED": str(place.rank + 1),
        "RANK": number,
        "LOCAL_RANK": number,
        "ROLE_RANK": number,
        "GROUP_RANK": "0",
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "ROLE_WORLD_SIZE": size,
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


def main(handed_over: int) -> NoReturn:
    """Be the rank that this open file describes."""
    try:
        with open(handed_over, "rb") as file:
            file.seek(0)
            handover = json.load(file)
        linux.share_one_heap()
        sys.path[:] = handover["sys_path"]
        sys.argv[:] = ["aggverify"]
        with interpreter.uncollected():
            importlib.import_module("torch.distributed")  # before a rank's limits are set
        trace.install()
        forking.install_fork_guard()
        place, handed = RankPlace(**handover["place"]), rank.Handed(**handover["handed"])
        rank.live(
            place, backend(handover["backend"]), handed, lambda: rank.construct(handover["request"])
        )
    finally:
        os._exit(0)
