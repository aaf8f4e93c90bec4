"""A command that torchrun or srun has started several times.

One process is the driver, which prints and writes, all others are hosts of its ranks.
"""

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
    from aggverify.world import Cluster, ReplayLog

_COMMAND = "check"
_SIGNS = ("TORCHELASTIC_RUN_ID", "SLURM_STEP_NUM_TASKS")


@dataclass(frozen=True, slots=True)
class CommandRun:
    """Of a command: when it began, and hosts for its ranks where they were launched."""

    began: float
    hosts: Cluster | None = None


def run(began: float, command: Callable[[CommandRun], object]) -> object:
    """Run it, or be a host of its ranks; the exit code. Raises InputError in the driver only."""
    if not any(name in os.environ for name in _SIGNS):
        return command(CommandRun(began))
    from aggverify.errors import InputError
    from aggverify.world import Cluster, linux, rendezvous, serving

    try:
        seat = rendezvous.rank_info(os.environ)
    except InputError:
        if os.environ.get("SLURM_PROCID") == "0":
            raise
        return ways_out.NO_JUDGEMENT
    if seat is None:
        return command(CommandRun(began))
    if seat.number:
        return serving.node_agent(seat)
    hosts, code = Cluster(seat), ways_out.NO_JUDGEMENT
    _ends_in_order(hosts)
    linux.die_with_parent(os.getppid(), signal.SIGTERM)

    def checked() -> object:
        # Reported here, when all are there: a launcher ends the first one when another has failed.
        if why := refused(sys.argv[1:]):
            raise InputError(why)
        return command(CommandRun(began, hosts))

    try:
        code = ways_out.ended(checked)
    finally:
        # Others end from here on, for which the launcher may want to end this one as well.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        goes_on = hosts.lost and seat.restarts < seat.most_restarts
        if hosts.replay_log is not None and not goes_on:
            hosts.replay_log.end()
        hosts.end(code)
    return code


def refused(arguments: list[str]) -> str:
    """Why nothing is run, "" where it is."""
    if arguments[:1] == [_COMMAND]:
        return ""
    named = f"`{arguments[0]}`" if arguments else "nothing"
    return f"launched several times there is only `{_COMMAND}`, not {named}: run it by itself"


def replay_log(hosts: Cluster) -> ReplayLog | None:
    """Return what the launcher's store keeps for the case that all are started again.

    Or has kept, if they were; None where they will not be. Raises InputError where there is nothing
    to go on from.
    """
    from aggverify.errors import InputError

    if not hosts.seat.most_restarts:
        return None
    found = hosts.kept()
    if found.over:
        raise InputError(
            "torchrun has started this again, and a check that came to its end is not run twice: "
            "its result is printed above"
        )
    return found


def _ends_in_order(hosts: Cluster) -> None:
    """Report what is known when the launcher ends this process, and why there is no more.

    Where that is done already it is not disturbed.
    """
    from aggverify.world import PoolError

    def ends(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not hosts.lost:
            why = "what has launched this ends it, as when another of its processes has failed"
            hosts.lose(why)
            raise PoolError(why)

    signal.signal(signal.SIGTERM, ends)
