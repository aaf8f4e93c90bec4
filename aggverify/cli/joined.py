"""A command that torchrun or srun has started several times.

One process is the driver, which prints and writes; all others are agents that run its ranks.
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
    """When a command began, and the launched processes for its ranks if there are any."""

    began: float
    cluster: Cluster | None = None


def run(began: float, command: Callable[[CommandRun], object]) -> object:
    """Run the command, or serve the driver's ranks; return the exit code.

    Raises InputError in the driver only, so that it is reported once.
    """
    if not any(name in os.environ for name in _SIGNS):
        return command(CommandRun(began))
    from aggverify.errors import InputError
    from aggverify.world import Cluster, linux, rendezvous, serving

    try:
        info = rendezvous.rank_info(os.environ)
    except InputError:
        if os.environ.get("SLURM_PROCID") == "0":
            raise
        return ways_out.NO_JUDGEMENT
    if info is None:
        return command(CommandRun(began))
    if info.number:
        return serving.node_agent(info)
    cluster, code = Cluster(info), ways_out.NO_JUDGEMENT
    _ends_in_order(cluster)
    linux.die_with_parent(os.getppid(), signal.SIGTERM)

    def checked() -> object:
        # Refused by the driver alone: a launcher ends it as soon as another process has failed.
        if why := refused(sys.argv[1:]):
            raise InputError(why)
        return command(CommandRun(began, cluster))

    try:
        code = ways_out.ended(checked)
    finally:
        # The others end from here on, on which the launcher may try to end this one as well.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        goes_on = cluster.lost and info.restarts < info.most_restarts
        if cluster.replay_log is not None and not goes_on:
            cluster.replay_log.end()
        cluster.end(code)
    return code


def refused(arguments: list[str]) -> str:
    """Return why a launched command is not run, "" where it is."""
    if arguments[:1] == [_COMMAND]:
        return ""
    named = f"`{arguments[0]}`" if arguments else "nothing"
    return f"launched several times there is only `{_COMMAND}`, not {named}: run it by itself"


def replay_log(cluster: Cluster) -> ReplayLog | None:
    """Return the log, in the launcher's store, of steps that a restart need not run again.

    None where the launcher restarts nothing. Raises InputError where the check has already ended.
    """
    from aggverify.errors import InputError

    if not cluster.seat.most_restarts:
        return None
    found = cluster.kept()
    if found.over:
        raise InputError(
            "torchrun has started this again, and a check that came to its end is not run twice: "
            "its result is printed above"
        )
    return found


def _ends_in_order(cluster: Cluster) -> None:
    """Let a launcher's SIGTERM end the command with a report of what is known, and the reason.

    Once a report is under way for that reason, nothing interrupts it.
    """
    from aggverify.world import PoolError

    def ends(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not cluster.lost:
            why = "what has launched this ends it, as when another of its processes has failed"
            cluster.lose(why)
            raise PoolError(why)

    signal.signal(signal.SIGTERM, ends)
