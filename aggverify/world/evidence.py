"""A fault's remains as text: what every rank was doing, and the last that the odd one printed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from aggverify.world.faults import Fault

_PRINTED = 5
"""Last lines of what was printed."""
_ONLY_THREAD = re.compile(r"^(Current thread|Thread) 0x\w+[^\n]*:\n")


def evidence(fault: Fault) -> str:
    """Paragraphs apart by an empty line: a traceback, or ranks with the collective they wait in
    and their Python stack, those alike together; then what the rank at fault printed last."""
    parts = [fault.traceback.rstrip()] if fault.traceback else []
    parts += [*_ranks(fault), *_changed(fault), *_printed(fault)]
    return "\n\n".join(parts)


def _ranks(fault: Fault) -> Iterator[str]:
    alike: dict[tuple[str, str], list[int]] = {}
    told = {*fault.stacks, *fault.collectives}
    if fault.exit_status is not None:
        # How far the others had come when one ended is a matter of chance.
        told &= {fault.rank} if fault.rank is not None else set()
    for rank in sorted(told):
        where, stack = fault.collectives.get(rank, ""), _bare(fault.stacks.get(rank, ""))
        # Beside a traceback it matters who waits for that rank; its own stack is the traceback.
        if where or not fault.traceback:
            alike.setdefault((where, stack), []).append(rank)
    for (where, stack), ranks in alike.items():
        yield _who(ranks, where) + (f":\n{stack}" if stack else "")


def _bare(stack: str) -> str:
    """Without the heading of a thread when there is only one."""
    several = len(re.findall(r"^(?:Current t|T)hread 0x", stack, re.M)) > 1
    return stack if several else _ONLY_THREAD.sub("", stack)


def _names(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _who(ranks: Sequence[int], where: str) -> str:
    names = _names(ranks)
    if not where:
        return f"{names}, outside any collective"
    return f"{names} {'waits' if len(ranks) == 1 else 'wait'} in {where}"


def _changed(fault: Fault) -> Iterator[str]:
    alike: dict[tuple[str, ...], list[int]] = {}
    for rank, names in sorted(fault.changes.items()):
        alike.setdefault(names, []).append(rank)
    for names, ranks in alike.items():
        yield f"{_names(ranks)} had left changed: {', '.join(names)}"


def _printed(fault: Fault) -> Iterator[str]:
    """Set apart by a bar, so that it cannot pass for anything else."""
    if fault.kind == "exception" or fault.rank is None:
        return
    lines = fault.output.get(fault.rank, "").splitlines()[-_PRINTED:]
    if any(map(str.strip, lines)):
        yield "\n".join((f"rank {fault.rank} printed last", *(f"  | {line}" for line in lines)))
