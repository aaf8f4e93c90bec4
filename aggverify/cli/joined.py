"""What becomes of a command that torchrun or srun has started several times: one is the driver,
which prints and writes, all others are hosts of its ranks."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from aggverify.cli import ways_out

if TYPE_CHECKING:
    from aggverify.world import Hosts

_COMMAND = "check"
_SIGNS = ("TORCHELASTIC_RUN_ID", "SLURM_STEP_NUM_TASKS")


@dataclass(frozen=True, slots=True)
class Run:
    """Of a command: when it began, and hosts for its ranks where they were launched."""

    began: float
    hosts: Hosts | None = None


def run(began: float, command: Callable[[Run], object]) -> object:
    """Run it, or be a host of its ranks; the exit code. Raises InputError in the driver only."""
    if not any(name in os.environ for name in _SIGNS):
        return command(Run(began))
    from aggverify.errors import InputError
    from aggverify.world import Hosts, host, linux, meeting

    try:
        seat = meeting.seat(os.environ)
    except InputError:
        if os.environ.get("SLURM_PROCID") == "0":
            raise
        return ways_out.NO_JUDGEMENT
    if seat is None:
        return command(Run(began))
    refused = _refused(sys.argv[1:], seat.restarts)
    if seat.number:
        return ways_out.NO_JUDGEMENT if refused else host.beside(seat)
    if refused:
        raise InputError(refused)
    # By whichever way it ends, what is known by then is told: as when it is interrupted.
    signal.signal(signal.SIGTERM, _interrupted)
    linux.die_with_parent(os.getppid(), signal.SIGTERM)
    hosts, code = Hosts(seat), ways_out.NO_JUDGEMENT
    try:
        code = ways_out.ended(lambda: command(Run(began, hosts)))
    finally:
        hosts.end(code)
    return code


def _refused(arguments: list[str], restarts: int) -> str:
    if arguments[:1] != [_COMMAND]:
        said = arguments[0] if arguments else "nothing"
        return f"launched several times there is only `{_COMMAND}`, not {said}: run it by itself"
    if restarts:
        return (
            "torchrun has started this again, and a check is not run twice: what became of the "
            "first is said above, and without --max-restarts it is the end"
        )
    return ""


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
