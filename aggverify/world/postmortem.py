"""Word what happened to a job: from the ranks' answers and remains to an Outcome.

Which rank is to blame is decided by order, since one fault causes others within milliseconds.
gloo alone was tried: ranks that a dead one leaves behind raise a connection reset, or wait for 30
minutes, and neither names it. So the first process that ended is the cause. Among ranks that wait,
one that has raised or left its group comes first, then collectives that differ, then a rank that
sleeps outside any. Collectives are compared by what ranks issued, not by what arrived: float32
against int32, or SUM against MAX, completes and gives garbage.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise, repeat
from typing import Any

from aggverify.world import flight_recorder, resource_headroom
from aggverify.world.agreement import Disagreement, Trace, different, disagreement
from aggverify.world.candidate_errors import Raised
from aggverify.world.collectives import Collective, read
from aggverify.world.exits import exit_text, printed
from aggverify.world.faults import (
    NO_EXCESS,
    Fault,
    FaultKind,
    Outcome,
    Replies,
    Reply,
    ResourceOveruse,
)
from aggverify.world.frames import Frame, Stack
from aggverify.world.link import Link
from aggverify.world.options import MOST_HELPERS, MOST_THREADS
from aggverify.world.process_inspector import ProcessInspector
from aggverify.world.stacks import collect, parse
from aggverify.world.state import PROCESS_GROUP
from aggverify.world.wire import Frame as Message


def finished(
    frames: Sequence[Message],
    links: Sequence[Link],
    number: int,
    pids_watch: resource_headroom.PidsWatch,
    inspector: ProcessInspector,
) -> tuple[Replies | Fault, bool]:
    """Outcome of a job that every rank has answered; True when the world can go on."""
    headers = [header for header, _ in frames]
    usable = not any(header.get("replace") for header in headers)
    odd = disagreement({rank: _trace(header) for rank, header in enumerate(headers)})
    if any("error" in header for header in headers):
        types = {header["error"]["type"] if "error" in header else None for header in headers}
        same_exit = len(types) == 1 and odd is None
        return Postmortem(links, number, pids_watch, inspector).raised(), usable and same_exit
    if odd is not None:
        return Postmortem(links, number, pids_watch, inspector).diverged(odd), False
    return Replies(tuple(_reply(header, blob) for header, blob in frames)), usable


def split(outcome: Outcome, count: int) -> list[Outcome | None]:
    """Return the outcomes of jobs that shared a dispatch; None for all if anything is wrong.

    Also when state was altered: by which of them, and what it did to the others, is not known.
    """
    if isinstance(outcome, Fault) or any(r.changes for r in outcome.replies):
        return [None] * count
    parts = [_parts(reply) for reply in outcome.replies]
    if any(len(rank) != count for rank in parts):
        return [None] * count
    return list(map(Replies, zip(*parts, strict=True)))


def _parts(reply: Reply) -> list[Reply]:
    """Return the replies that a rank has put into one; none if it has not."""
    each: Any = reply.data.get("parts")
    sizes: Any = reply.data.get("sizes")
    if not (_all(dict, each) and _all(int, sizes) and len(each) == len(sizes)):
        return []
    ends = list(accumulate(sizes, initial=0))
    if min(sizes, default=0) < 0 or ends[-1] != len(reply.blob):
        return []
    notes = reply.notes if len(ends) == 2 else ()
    blobs = [reply.blob[start:end] for start, end in pairwise(ends)]
    return list(map(Reply, each, blobs, repeat(()), repeat(notes)))


def _all(kind: type, values: Any) -> bool:
    return isinstance(values, list) and set(map(type, values)) <= {kind}


def _reply(header: dict[str, Any], blob: bytes) -> Reply:
    return Reply(header["data"], blob, tuple(header.get("changes", ())), tuple(header["trace"]))


def _trace(header: Mapping[str, Any]) -> Trace:
    return Trace(header["trace"], True, header.get("checksums", {}), header["sequences"])


class Postmortem:
    """A job gone wrong: the evidence, gathered while ranks and their remains still exist."""

    def __init__(
        self,
        links: Sequence[Link],
        number: int,
        pids_watch: resource_headroom.PidsWatch,
        inspector: ProcessInspector,
    ) -> None:
        self._links = links
        self._sight = inspector
        self._pids_watch = pids_watch
        self._number = number
        self._signs = tuple(flight_recorder.signs(link.recorder) for link in links)
        self._traces: dict[int, Trace] = {}
        self._inside: dict[int, Collective] = {}
        self._errors: dict[int, Raised] = {}
        self._changes: dict[int, tuple[str, ...]] = {}
        # Ranks whose handler was at its own work, so that what failed is no fault of the code.
        self._own: set[int] = set()
        for link in links:
            seen = flight_recorder.read(link.recorder)
            begun = seen.job == number
            if begun and seen.own:
                self._own.add(link.rank)
            if link.replies:
                self._answered(link.rank, link.replies[0][0])
            else:
                self._unanswered(link.rank, seen if begun else None)

    def _answered(self, rank: int, header: dict[str, Any]) -> None:
        self._traces[rank] = _trace(header)
        if "error" in header:
            self._errors[rank] = Raised.from_json(header["error"])
        if "changes" in header:
            self._changes[rank] = tuple(header["changes"])

    def _unanswered(self, rank: int, seen: flight_recorder.FlightRecord | None) -> None:
        """Take what its flight recorder holds, None where the rank has not begun this job."""
        self._traces[rank] = Trace(() if seen is None else seen.entries, False)
        if seen is not None and seen.inside is not None:
            self._inside[rank] = read(seen.inside)

    @property
    def _left(self) -> set[int]:
        """Ranks that are no longer in the process group they were given."""
        return {rank for rank, names in self._changes.items() if PROCESS_GROUP in names}

    def raised(self) -> Fault:
        """Return the fault where some ranks raised, and the others have answered or wait."""
        if self._left and not self._left & self._errors.keys():
            return self._fault("exception", min(self._left), _destroyed(min(self._left)))
        # What failed before the code under test was called is the cause of what failed in it.
        rank = min(self._errors.keys() & self._own or self._errors)
        error = self._errors[rank]
        message = f"rank {rank}: {error.message if error.breach else error.text}"
        if len(self._errors) < len(self._links):
            others = sorted(link.rank for link in self._links if link.rank not in self._errors)
            message += f" (on rank {_list(sorted(self._errors))}, not on {_list(others)})"
        return self._fault("exception", rank, message)

    def diverged(self, odd: Disagreement, **more: Any) -> Fault:
        """Ranks issued different collectives."""
        message = f"rank {odd.rank}: {odd.message}"
        return self._fault("diverged", odd.rank, message, apart=odd.calls, **more)

    @property
    def signs(self) -> tuple[bytes, ...]:
        """Heads of the flight recorders, which are different once any rank has got further."""
        return self._signs

    @property
    def asleep(self) -> list[int]:
        """Ranks that have not answered and are in no collective, which may be asleep.

        Empty where ranks disagree, or one has left its group: that is why they wait.
        """
        if self._left or disagreement(self._traces) is not None:
            return []
        return [link.rank for link in self._links if self._idle(link)]

    def _idle(self, link: Link) -> bool:
        return not link.replies and link.rank not in self._inside

    def sleeping_at(self) -> frozenset[tuple[str, int]]:
        """Lines on which those sleep: what the code under test stands on, and what it called."""
        stacks = self._stacks(wake=False)
        threads = [stack for rank in self.asleep for stack in stacks.get(rank, ())]
        return frozenset((f.file, f.line) for stack in threads for f in _called(stack))

    def blocked(self) -> Fault:
        """Every rank that has not answered sleeps for good."""
        stacks = self._stacks()
        if self._errors:
            return self.raised()
        if self._left:
            message = _destroyed(min(self._left))
            return self._fault("blocked", min(self._left), message, stacks=stacks)
        odd = disagreement(self._traces)
        if odd is not None:
            return self.diverged(odd, stacks=stacks)
        idle = [link.rank for link in self._links if self._idle(link)]
        if idle:
            message = f"rank {idle[0]} sleeps or waits outside any collective, for good"
            return self._fault("blocked", idle[0], message, stacks=stacks)
        silent = [link.rank for link in self._links if not link.replies]
        # All wait in collectives, which cannot be the same one, or it would complete.
        apart = different(
            {rank: self._inside[rank] for rank in silent}, "ranks wait for each other"
        )
        if apart is not None:
            return self.diverged(apart, stacks=stacks)
        rank = silent[0]
        message = f"rank {rank} waits in {self._inside[rank].text}, which others do not join"
        return self._fault("diverged", rank, message, stacks=stacks)

    def runaway(self, rank: int, seconds: float) -> Fault:
        """Return the fault of a rank that has used up its processor time."""
        message = f"rank {rank} did not finish within {seconds:g} s of processor time"
        first = self._number == 0
        return self._fault("runaway", rank, message, stacks=self._stacks(), first=first)

    def prints(self, rank: int, most: int) -> Fault:
        """Return the fault of a rank that has written more than it may."""
        message = f"rank {rank} {printed(most)}"
        return self._fault("runaway", rank, message, stacks=self._stacks())

    def died(self, rank: int, out_of_memory: str) -> Fault:
        """Return the fault of a rank that is gone without an answer."""
        link = self._links[rank]
        odd = disagreement(self._traces)
        if odd is not None and link.exit_status == -signal.SIGABRT and rank not in self._own:
            # gloo aborts when message sizes do not match: report why rather than how.
            return self.diverged(odd, exit_status=link.exit_status)
        message = f"rank {rank} {link.garbage or exit_text(link.exit_status)}"
        crash, threads = parse(flight_recorder.dump(link.recorder))
        return self._fault(
            "died",
            rank,
            message,
            stacks={rank: threads} if threads else {},
            crash=crash,
            exit_status=link.exit_status,
            out_of_memory=out_of_memory,
        )

    def _fault(self, kind: FaultKind, rank: int, message: str, **more: Any) -> Fault:
        refused = kind != "runaway" and self._pids_watch.refused()
        # It does not matter on which rank: the others fail for the same want, or wait for it.
        lacking = refused or self._no_room(kind, rank)
        # Code under test that was refused one more may have started all the others since the fork
        # server last counted them.
        crowd = self._crowd() if lacking else NO_EXCESS
        if crowd:
            kind, message, more = (
                "died",
                crowd.text,
                {**more, "processes": crowd.processes, "threads": crowd.threads},
            )
        return Fault(
            kind,
            None if crowd else rank,
            message,
            len(self._links),
            self._errors,
            inside=self._inside,
            traces={rank: trace.collectives for rank, trace in self._traces.items()},
            output={link.rank: text for link in self._links if (text := link.output.drain())},
            changes=self._changes,
            is_internal=not crowd and (lacking or self._ours(kind, rank)),
            **more,
        )

    def _no_room(self, kind: FaultKind, rank: int) -> bool:
        """Whether the machine has no room for what the code under test asks of it."""
        if kind == "exception":
            texts = [self._errors[rank].message] if rank in self._errors else []
        else:
            texts = [self._links[rank].output.drain()] if kind == "died" else []
        return any(map(resource_headroom.ran_out, texts)) and bool(resource_headroom.tight())

    def _crowd(self) -> ResourceOveruse:
        """Return the processes or threads below these ranks where more than any run needs."""
        seen = self._sight.look((link.pid for link in self._links if link.pid is not None), set())
        if max(Counter(seen.roots.values()).values(), default=0) > MOST_HELPERS:
            return ResourceOveruse(processes=len(seen.roots))
        return (
            ResourceOveruse(threads=len(seen.threads))
            if len(seen.threads) > MOST_THREADS
            else NO_EXCESS
        )

    def _ours(self, kind: FaultKind, rank: int) -> bool:
        """Whether the handler was at its own work on the rank at fault, or on one it waits for."""
        if kind in ("exception", "died"):
            return rank in self._own
        if self._own & self._errors.keys():
            return True
        silent = {link.rank for link in self._links if not link.replies}
        if kind == "runaway" or disagreement(self._traces) is not None:
            return bool(silent) and silent <= self._own
        # All sleep: those in the code under test wait for one that is at the handler's own work.
        return bool(silent & self._own)

    def _stacks(self, *, wake: bool = True) -> dict[int, tuple[Stack, ...]]:
        silent = {
            link.rank: (link.pid, link.recorder)
            for link in self._links
            if link.pid is not None and not link.ended and not link.replies
        }
        return collect(silent, lambda pid: self._sight.ask(pid, wake=wake))


def _called(stack: Stack) -> Sequence[Frame]:
    """Frames up to the outermost of the code under test; what called that may differ."""
    theirs = [n for n, frame in enumerate(stack.frames) if frame.owner == "candidate"]
    return stack.frames[: theirs[-1] + 1] if theirs else stack.frames


def _list(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))


def _destroyed(rank: int) -> str:
    return f"rank {rank} destroyed or replaced the default process group"
