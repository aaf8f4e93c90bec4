"""Which lines of a reducer ran, and on which kind of case: what no case took is not judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from aggverify.execution.laboratory import Execution

Functions = Sequence[tuple[str, tuple[int, ...]]]
"""Functions of the reducer's file by name, with the lines of their bodies."""
MOST = 6
"""Parts of functions that are told."""


@dataclass(slots=True)
class Covered:
    """The lines that ran in executed cases."""

    anywhere: set[int] = field(default_factory=set)
    sharded: set[int] = field(default_factory=set)
    """On several ranks."""

    def add(self, executions: Iterable[Execution]) -> None:
        """Note executions that came to a result."""
        for execution in executions:
            if not execution.lines:
                continue
            self.anywhere.update(execution.lines)
            if execution.case.layout.world_size > 1:
                self.sharded.update(execution.lines)

    def weaknesses(self, functions: Functions) -> Iterator[tuple[str, str]]:
        """Codes of warnings and what they say: lines that never ran of functions that did, and
        lines that ran on one rank only though their function ran on several."""
        if never := list(_missing(functions, self.anywhere)):
            yield "AGVW17", _listed(never)
        alone = [(name, tuple(n for n in lines if n in self.anywhere)) for name, lines in functions]
        if never := list(_missing(alone, self.sharded)):
            yield "AGVW18", _listed(never)


def _missing(functions: Functions, ran: set[int]) -> Iterator[str]:
    for name, lines in functions:
        left = [line for line in lines if line not in ran]
        if left and len(left) < len(lines):
            yield f"{_told(left, lines)} of {name}"


def _told(left: Sequence[int], lines: Sequence[int]) -> str:
    """``lines 12-14, 20``: a range goes on over what is no line of code."""
    place = {line: n for n, line in enumerate(lines)}
    ranges: list[list[int]] = []
    for line in left:
        if ranges and place[line] == place[ranges[-1][-1]] + 1:
            ranges[-1].append(line)
        else:
            ranges.append([line])
    texts = [f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in ranges]
    return f"line{'s' * (len(left) > 1)} {', '.join(texts)}"


def _listed(parts: Sequence[str]) -> str:
    """The first of them."""
    more = [f"and {len(parts) - MOST} more"] if len(parts) > MOST else []
    return "; ".join([*parts[:MOST], *more])
