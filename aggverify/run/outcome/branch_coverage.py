"""Which lines of a reducer and outcomes of its conditions ran, and on which kinds of case.

What no case took is not judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain

from msgspec.structs import replace

from aggverify.execution.executed import Execution
from aggverify.model import Decided, Lines
from aggverify.steps import case_tags
from aggverify.steps.case_tags import ONE_RANK, SHARDED
from aggverify.trainer.conditions import Condition
from aggverify.world import Fault

MOST = 6
"""Parts of functions that are reported."""


@dataclass(slots=True)
class BranchCoverage:
    """What ran in executed cases, each with the kinds of case it ran on (``steps.case_tags``)."""

    lines: dict[int, int] = field(default_factory=dict)
    outcomes: dict[int, int] = field(default_factory=dict)
    """By ``2 * n`` where condition ``n`` was false, by ``2 * n + 1`` where it was true."""
    unknown: set[str] = field(default_factory=set)
    """Functions in which an execution failed: what it ran of them is not known."""

    def add(self, executions: Iterable[Execution]) -> None:
        """Note what these ran."""
        for execution in executions:
            if execution.failure is not None:
                self.unknown |= set(_inside(execution.failure))
            if not execution.lines and not execution.outcomes:
                continue
            these = case_tags.tags(execution.case)
            for line in execution.lines:
                self.lines[line] = self.lines.get(line, 0) | these
            for outcome in execution.outcomes:
                self.outcomes[outcome] = self.outcomes.get(outcome, 0) | these

    def on(self, kind: str) -> set[int]:
        """Return the lines that ran on a case of this kind."""
        return _on(self.lines, kind)

    def weaknesses(
        self,
        functions: Sequence[Lines],
        conditions: Sequence[Condition | Decided] = (),
        fixed: Collection[str] = (),
    ) -> Iterator[tuple[str, str]]:
        """Yield codes of warnings and their texts.

        What never ran of functions that did, and what ran on one rank only though its function ran
        on several. ``fixed``: parameters with one value in training, so that a condition on one of
        them alone goes one way.
        """
        ran, sharded = set(self.lines), self.on(SHARDED)
        functions = [each for each in functions if each.function not in self.unknown]
        not_reached = {c.then for c in conditions if c.text in fixed}
        functions = [_only(each, set(each.lines) - not_reached) for each in functions]
        free = (n for n, c in enumerate(conditions) if c.text not in fixed)
        every = [n for n in free if conditions[n].function not in self.unknown]
        never = [*_missing(functions, ran)]
        never += _one_way(conditions, every, set(self.outcomes), ran)
        if never:
            yield "AGVW17", _listed(never)
        alone = [_only(each, ran) for each in functions]
        on_several = _on(self.outcomes, SHARDED)
        asked = {n for n in every if self._has_both(n) and not self._asks_for_ranks(n)}
        never = [*_missing(alone, sharded)]
        never += _one_way(conditions, asked, on_several, sharded)
        if never:
            yield "AGVW18", _listed(never)

    def _has_both(self, place: int) -> bool:
        return 2 * place in self.outcomes and 2 * place + 1 in self.outcomes

    def _asks_for_ranks(self, place: int) -> bool:
        """Whether a condition is always one way on one rank and the other way on several."""
        one, several = case_tags.encode([ONE_RANK]), case_tags.encode([SHARDED])
        ways = [self.outcomes[2 * place + true] & (one | several) for true in (False, True)]
        return sorted(ways) == sorted([one, several])


def _inside(fault: Fault) -> Iterator[str]:
    """Yield the candidate's functions in which ranks raised, or stood when they were stopped."""
    raised = (error.frames for error in fault.errors.values())
    stood = (stack.frames for threads in fault.stacks.values() for stack in threads)
    for frame in chain.from_iterable((*raised, *stood)):
        if frame.owner == "candidate":
            yield frame.function


def _on(ran: Mapping[int, int], kind: str) -> set[int]:
    bit = case_tags.encode([kind])
    return {what for what, on in ran.items() if on & bit}


def _one_way(
    conditions: Sequence[Condition | Decided], asked: Collection[int], seen: Set[int], ran: Set[int]
) -> Iterator[str]:
    """Yield the conditions in ``asked`` that went one way only.

    Not where the other way leads to a line that never ran: that line is reported itself.
    """
    for n in sorted(asked):
        condition, true, false = conditions[n], 2 * n + 1 in seen, 2 * n in seen
        left = condition.otherwise if true else condition.then
        if true != false and (left in ran or left in (0, condition.line)):
            word, where = "false" if true else "true", f"{condition.line} of {condition.function}"
            yield f"`{condition.text}` never {word} in line {where}"


def _only(function: Lines, kept: Set[int]) -> Lines:
    return replace(function, lines=tuple(n for n in function.lines if n in kept))


def _missing(functions: Sequence[Lines], ran: Set[int]) -> Iterator[str]:
    for each in functions:
        left = [line for line in each.lines if line not in ran]
        if left and len(left) < len(each.lines):
            yield f"{_line_text(left, each.lines)} of {each.function}"


def _line_text(left: Sequence[int], lines: Sequence[int]) -> str:
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
    """Return the first parts as text, and how many more there are."""
    more = [f"and {len(parts) - MOST} more"] if len(parts) > MOST else []
    return "; ".join([*parts[:MOST], *more])
