"""Word what happened to a job: from the ranks' answers and remains to an Outcome."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from aggverify.world import slate
from aggverify.world.comparison import Trace, disagreement, readable
from aggverify.world.faults import Fault, FaultKind, Replies, Reply
from aggverify.world.link import Link
from aggverify.world.rank import STACK_SIGNAL
from aggverify.world.stacks import tidy
from aggverify.world.wire import Frame

_DUMP_PATIENCE = 0.25


def finished(frames: Sequence[Frame], links: Sequence[Link]) -> tuple[Replies | Fault, bool]:
    """Outcome of a job that every rank has answered; True when the world can go on."""
    headers = [header for header, _ in frames]
    traces = {rank: _trace(header) for rank, header in enumerate(headers)}
    odd = disagreement(traces)
    raised = {r: h["error"] for r, h in enumerate(headers) if "error" in h}
    if raised and (odd is None or len(raised) < len(headers)):
        alike = len(raised) == len(headers) and len({e["type"] for e in raised.values()}) == 1
        fault = _raised(raised, len(headers), links, _entries(traces))
        return fault, alike and odd is None and not any(h.get("replace") for h in headers)
    if odd is not None:
        return _fault("diverged", odd.rank, odd.message, links, traces=_entries(traces)), False
    replies = tuple(_reply(header, blob) for header, blob in frames)
    return Replies(replies), not any(h.get("replace") for h in headers)


def _reply(header: dict[str, Any], blob: bytes) -> Reply:
    data = header["data"]
    if "changes" in header:
        data["state_changes"] = header["changes"]
    return Reply(data, blob)


def _trace(header: Mapping[str, Any]) -> Trace:
    return Trace(header["trace"], True, header.get("checksums", {}), header["sequences"])


def _entries(traces: Mapping[int, Trace]) -> dict[int, tuple[str, ...]]:
    return {r: tuple(readable(e) for e in t.entries) for r, t in traces.items()}


def _raised(
    raised: Mapping[int, Mapping[str, str]],
    size: int,
    links: Sequence[Link],
    traces: Mapping[int, tuple[str, ...]],
    waiting: Mapping[int, str] | None = None,
) -> Fault:
    rank, error = min(raised.items())
    message = f"{error['type']}: {error['message']}".removesuffix(": ")
    if len(raised) == size and size > 1:
        message += " (on every rank)"
    elif size > 1:
        others = ", ".join(map(str, sorted(set(range(size)) - set(raised))))
        message += f" (on rank {', '.join(map(str, sorted(raised)))}, not on {others})"
    return _fault(
        "exception", rank, message, links, traceback=error["traceback"], traces=traces,
        collectives=waiting or {},
    )  # fmt: skip


def _fault(
    kind: FaultKind, rank: int | None, message: str, links: Sequence[Link], **more: Any
) -> Fault:
    output = {link.rank: text for link in links if (text := link.output.drain())}
    return Fault(kind, rank, message, output=output, **more)


class Scene:
    """A job that some ranks have not answered: gather the evidence while they still exist."""

    def __init__(self, links: Sequence[Link], number: int) -> None:
        self._links = links
        self._traces: dict[int, Trace] = {}
        self._inside: dict[int, str] = {}
        for link in links:
            if link.replies:
                self._traces[link.rank] = _trace(link.replies[0][0])
                continue
            seen = slate.read(link.slate)
            # Another number: the rank has not begun this job.
            entries = seen.entries if seen.job == number else ()
            self._traces[link.rank] = Trace(entries, False)
            if seen.job == number and seen.inside is not None:
                self._inside[link.rank] = readable(seen.inside)
        self._raised = {
            link.rank: link.replies[0][0]["error"]
            for link in links
            if link.replies and "error" in link.replies[0][0]
        }

    def blocked(self) -> Fault:
        """Every rank that has not answered sleeps for good."""
        stacks = self._stacks()
        if self._raised:
            fault = _raised(
                self._raised, len(self._links), self._links, _entries(self._traces), self._inside
            )
            return _with_stacks(fault, stacks)
        odd = disagreement(self._traces)
        if odd is not None:
            return self._told("diverged", odd.rank, odd.message, stacks)
        idle = [l.rank for l in self._links if not l.replies and l.rank not in self._inside]
        rank = idle[0] if idle else next(l.rank for l in self._links if not l.replies)
        where = (
            "sleeps or waits outside any collective" if idle else f"waits in {self._inside[rank]}"
        )
        return self._told("blocked", rank, f"rank {rank} {where} and nothing will wake it", stacks)

    def runaway(self, rank: int, seconds: float) -> Fault:
        """A rank has used up its processor time."""
        message = f"rank {rank} did not finish within {seconds:g} s of its own processor time"
        return self._told("runaway", rank, message, self._stacks())

    def silent(self, seconds: float) -> Fault:
        """No progress for the wall-clock limit, for whatever reason."""
        rank = next(link.rank for link in self._links if not link.replies)
        message = f"no progress for {seconds:g} s; rank {rank} has not answered"
        return self._told("blocked", rank, message, self._stacks())

    def died(self, rank: int) -> Fault:
        """A rank is gone without an answer."""
        link = self._links[rank]
        odd = disagreement(self._traces)
        if odd is not None and link.exit_status == -signal.SIGABRT:
            # gloo aborts when message sizes do not match: say why rather than how.
            message = f"{odd.message}; gloo aborted rank {rank}"
            return self._told("diverged", odd.rank, message, {}, link.exit_status)
        how = link.garbage or exit_text(link.exit_status)
        crash = tidy(slate.dump(link.slate))
        stacks = {rank: crash} if crash else {}
        return self._told("died", rank, f"rank {rank} {how}", stacks, link.exit_status)

    def _told(
        self,
        kind: FaultKind,
        rank: int,
        message: str,
        stacks: Mapping[int, str],
        exit_status: int | None = None,
    ) -> Fault:
        return _fault(
            kind, rank, message, self._links, stacks=stacks, exit_status=exit_status,
            collectives=self._inside, traces=_entries(self._traces),
        )  # fmt: skip

    def _stacks(self) -> dict[int, str]:
        """Ask every rank for its Python stack; what has not come after a moment is left out."""
        asked = [l for l in self._links if l.pid is not None and not l.ended and not l.replies]
        for link in asked:
            with contextlib.suppress(OSError):
                os.kill(link.pid or 0, STACK_SIGNAL)
        ends = time.monotonic() + _DUMP_PATIENCE
        sizes: dict[int, int] = {}
        while time.monotonic() < ends:
            time.sleep(0.003)
            now = {link.rank: slate.dump_size(link.slate) for link in asked}
            if all(now.values()) and now == sizes:
                break
            sizes = now
        dumps = {link.rank: tidy(slate.dump(link.slate)) for link in asked}
        return {rank: text for rank, text in dumps.items() if text}


def _with_stacks(fault: Fault, stacks: Mapping[int, str]) -> Fault:
    from dataclasses import replace

    return replace(fault, stacks=stacks)


def exit_text(status: int | None) -> str:
    """How a process ended, in words: exit code, or signal with its name."""
    if status is None:
        return "closed its connection"
    if status >= 0:
        return f"exited with status {status}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"
