"""The conditions in a reducer's file: where its code goes one way or another, and which way.

Read from compiled code, with the text of each out of the source.
"""

from __future__ import annotations

import ast
import dis
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from types import CodeType

Position = tuple[int | None, int | None, int | None, int | None]
_LONGEST = 60
"""Characters of a condition that are shown."""
_ON_THE_WAY = {"TO_BOOL", "COPY", "EXTENDED_ARG", "CACHE", "NOP", "NOT_TAKEN"}
"""Instructions between a value and the jump that looks at it."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Part of a test that is true or false by itself, such as one side of an ``and``."""

    function: str
    line: int
    text: str
    then: int = 0
    """The line that comes next where it is true; 0 for none."""
    otherwise: int = 0


@dataclass(frozen=True, slots=True)
class Jump:
    """An instruction that looks at a condition; ``truth`` of it where it jumps."""

    index: int
    truth: bool
    target: frozenset[int]
    """Offsets at which it may be seen to arrive: its target, or what follows a prefix there."""
    after: frozenset[int]
    """The same for the next instruction, which comes where it does not jump."""

    def outcome(self, offset: int) -> int | None:
        """Return :func:`outcome`'s number of what was decided, if that is the next instruction."""
        if offset in self.target:
            return outcome(self.index, self.truth)
        return outcome(self.index, not self.truth) if offset in self.after else None


def outcome(index: int, truth: bool) -> int:
    """One number for a condition and whether it was true."""
    return 2 * index + truth


@dataclass(frozen=True, slots=True)
class _Leaf:
    position: Position
    is_none: bool | None
    """True of ``x is None``, False of ``x is not None``: one instruction tests it and jumps. None
    of any other test."""
    condition: Condition


class Conditions:
    """All of one source; what only decides whether to raise is left out."""

    def __init__(self, source: str, refusing: set[int]) -> None:
        """``refusing``: lines that only raise."""
        leaves: dict[Position, _Leaf] = {}
        for leaf in _leaves(ast.parse(source), source):
            leaves.setdefault(leaf.position, leaf)
        self._leaves = leaves
        kept = [leaf.condition.line not in refusing for leaf in leaves.values()]
        # By their places in the source first; below, by place among those that code jumps on.
        self._index = {p: n for n, p in enumerate(leaves) if kept[n] and leaves[p].condition.text}
        every = [leaf.condition for leaf in leaves.values()]
        found: dict[int, Condition] = {}
        for function, code in _functions(compile(source, "", "exec"), ""):
            lines = {i.offset: i.positions.lineno or 0 for i in _instructions(code) if i.positions}
            for jump in self.of(code).values():
                ways = _line(lines, jump.after), _line(lines, jump.target)
                otherwise, then = ways if jump.truth else ways[::-1]
                made = replace(every[jump.index], function=function, then=then, otherwise=otherwise)
                found.setdefault(jump.index, made)
        places = list(leaves)
        self._index = {places[n]: place for place, n in enumerate(sorted(found))}
        self.all: Sequence[Condition] = [found[n] for n in sorted(found)]

    def of(self, code: CodeType) -> dict[int, Jump]:
        """Return the jumps of one code object by their offset, and by those of their prefixes."""
        found: dict[int, Jump] = {}
        instructions = _instructions(code)
        arrivals = dict(_arrivals(instructions))
        for n, instruction in enumerate(instructions[:-1]):
            name = instruction.opname
            if "JUMP" not in name or "_IF_" not in name:
                continue
            before = next(i for i in reversed(instructions[:n]) if i.opname not in _ON_THE_WAY)
            leaf = self._leaves.get(_position(before))
            if leaf is None or leaf.position not in self._index:
                continue
            jump = Jump(
                self._index[leaf.position],
                _truth(name, leaf.is_none),
                arrivals.get(instruction.argval, frozenset()),
                arrivals.get(instructions[n + 1].offset, frozenset()),
            )
            found[instruction.offset] = jump
            for extending in takewhile(_extends, reversed(instructions[:n])):
                found[extending.offset] = jump
        return found


def _truth(name: str, is_none: bool | None) -> bool:
    """Return what the condition is where an instruction of this name jumps."""
    if "NONE" in name:
        jumps_where_none = "NOT_NONE" not in name
        true_where_none = is_none is not False
        return jumps_where_none is true_where_none
    return "IF_TRUE" in name


def _extends(instruction: dis.Instruction) -> bool:
    return instruction.opname == "EXTENDED_ARG"


def _instructions(code: CodeType) -> list[dis.Instruction]:
    return list(dis.get_instructions(code))


def _arrivals(instructions: Sequence[dis.Instruction]) -> Iterator[tuple[int, frozenset[int]]]:
    """Yield each offset with those at which control that gets there may be seen.

    That is its own, and behind a prefix or an instruction that does nothing the next as well.
    """
    seen: frozenset[int] = frozenset()
    for instruction in reversed(instructions):
        passed_over = instruction.opname in ("EXTENDED_ARG", "NOT_TAKEN", "NOP")
        seen = (seen if passed_over else frozenset()) | {instruction.offset}
        yield instruction.offset, seen


def _line(lines: Mapping[int, int], offsets: frozenset[int]) -> int:
    return max((lines.get(offset, 0) for offset in offsets), default=0)


def _position(instruction: dis.Instruction) -> Position:
    p = instruction.positions
    return (None,) * 4 if p is None else (p.lineno, p.col_offset, p.end_lineno, p.end_col_offset)


def _functions(code: CodeType, within: str) -> Iterator[tuple[str, CodeType]]:
    """Every code object of functions, with the name of the outermost one that it lies in."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            own = within or (inner.co_qualname if inner.co_flags & inspect.CO_NEWLOCALS else "")
            if own:
                yield own, inner
            yield from _functions(inner, own)


def _leaves(tree: ast.Module, source: str) -> Iterator[_Leaf]:
    for node in ast.walk(tree):
        tests: list[ast.expr] = []
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            tests = [node.test]
        elif isinstance(node, ast.comprehension):
            tests = node.ifs
        elif isinstance(node, ast.BoolOp):
            tests = node.values[:-1]
        raising = isinstance(node, ast.If) and (_raises(node.body) or _raises(node.orelse))
        for test in tests:
            for leaf in _parts(test):
                text = "" if raising else _text(leaf, source)
                condition = Condition("", leaf.lineno, text)
                yield from _by_last_value(leaf, condition)


def _by_last_value(leaf: ast.expr, condition: Condition) -> Iterator[_Leaf]:
    """Yield a leaf by the position of the value that is looked at last."""
    match leaf:
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as how],
                         comparators=[ast.Constant(value=None)]):  # fmt: skip
            yield _Leaf(_place(left), isinstance(how, ast.Is), condition)
        case ast.NamedExpr(target=target):
            yield _Leaf(_place(target), None, condition)
        case _:
            yield _Leaf(_place(leaf), None, condition)


def _parts(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _parts(value)
        return
    yield test
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand)


def _raises(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Raise)


def _place(node: ast.expr) -> Position:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _text(node: ast.expr, source: str) -> str:
    text = " ".join((ast.get_source_segment(source, node) or "").split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
