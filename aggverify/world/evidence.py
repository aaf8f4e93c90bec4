"""A fault as text: what every rank was doing, and the last that the one at fault printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aggverify.world.candidate_errors import Raised
from aggverify.world.faults import Fault
from aggverify.world.frames import Stack, lines, shown

_PRINTED = 5
"""Last lines of what was printed."""


def evidence(fault: Fault) -> str:
    """Return what shows the fault, in paragraphs with an empty line between them.

    First a traceback, or ranks with the collective they wait in and their Python stack, equal ones
    together; then what the rank at fault printed last.
    """
    error = None if fault.breach else fault.error
    parts = [error.traceback] if error is not None else []
    return "\n\n".join([*parts, *_ranks(fault, error), *_changed(fault), *_printed(fault)])


def threads_text(threads: Sequence[Stack], crash: str = "") -> str:
    """Threads as the interpreter prints them, under headings where there are several."""
    parts = [f"Fatal Python error: {crash}"] if crash else []
    for stack in threads:
        heading = f"Thread {stack.thread} (most recent call first):"
        frames = lines(shown(stack.frames))
        parts.append("\n".join([heading, *frames] if len(threads) > 1 else frames))
    return "\n\n".join(parts)


def _ranks(fault: Fault, raised: Raised | None) -> Iterator[str]:
    grouped: dict[tuple[str, str], list[int]] = {}
    known = {*fault.stacks, *fault.inside}
    if fault.crash and fault.rank is not None:
        known.add(fault.rank)
    if fault.exit_status is not None:
        # How far the others had come when one ended is a matter of chance.
        known &= {fault.rank} if fault.rank is not None else set()
    for rank in sorted(known):
        call, crash = fault.inside.get(rank), fault.crash if rank == fault.rank else ""
        where = "" if call is None else call.text
        # Next to a traceback it matters who waits for that rank; its own stack is the traceback.
        if where or raised is None:
            stack = threads_text(fault.stacks.get(rank, ()), crash)
            grouped.setdefault((where, stack), []).append(rank)
    for (where, stack), ranks in grouped.items():
        yield _who(ranks, where) + (f":\n{stack}" if stack else "")


def _names(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _who(ranks: Sequence[int], where: str) -> str:
    names = _names(ranks)
    if not where:
        return f"{names}, outside any collective"
    return f"{names} {'waits' if len(ranks) == 1 else 'wait'} in {where}"


def _changed(fault: Fault) -> Iterator[str]:
    grouped: dict[tuple[str, ...], list[int]] = {}
    for rank, names in sorted(fault.changes.items()):
        grouped.setdefault(names, []).append(rank)
    for names, ranks in grouped.items():
        yield f"{_names(ranks)} had left changed: {', '.join(names)}"


def _printed(fault: Fault) -> Iterator[str]:
    """Set apart by a bar, so that it cannot pass for anything else."""
    if fault.kind == "exception" or fault.rank is None:
        return
    printed = fault.output.get(fault.rank, "").splitlines()[-_PRINTED:]
    if any(map(str.strip, printed)):
        yield "\n".join((f"rank {fault.rank} printed last", *(f"  | {line}" for line in printed)))
