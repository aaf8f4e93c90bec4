"""Runs scripts as ``python`` and ``torchrun`` do, all of them forked from one process with torch.

``python -m tests.scripts FOLDER``: every ``*.py`` there, on the ranks that its second line names;
``FOLDER/results.json`` has the exit code and what was printed, by name.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import socket
import sys
import traceback
from pathlib import Path

RANKS = re.compile(r"--nproc-per-node (\d+)")


def ranks(text: str) -> int:
    """How many torchrun starts."""
    found = RANKS.search(text.split("\n")[1])
    return int(found[1]) if found else 1


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def started(path: Path, rank: int, size: int, port: int) -> int:
    """The process of one rank."""
    pid = os.fork()
    if pid:
        return pid
    out = os.open(f"{path}.{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sys.argv = [str(path)]
    code = 0
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as left:
        code = int(left.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(path: Path) -> tuple[int, str]:
    """The worst exit code of its ranks, and what they printed."""
    size, port = ranks(path.read_text()), free_port()
    pids = [started(path, rank, size, port) for rank in range(size)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    told = [Path(f"{path}.{rank}.txt").read_text() for rank in range(size)]
    return max(map(abs, codes)), "\n".join(told)


if __name__ == "__main__":
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    assert dist.is_available()
    folder = Path(sys.argv[1]).resolve()
    found = {path.stem: run(path) for path in sorted(folder.glob("*.py"))}
    (folder / "results.json").write_text(json.dumps(found))
