"""Which layouts and steps does the candidate decline? Asked before anything is judged.

One that raises because it is broken must not pass for one that declines: what is refused has to be
all that was tried of a dimension, and nothing without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aggverify.checks.refusal import refusal
from aggverify.checks.spaces import spread
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Refused, Subject
from aggverify.generation.catalogue import grid, hard_cases, more_cases, plain_losses
from aggverify.steps.case import Case
from aggverify.steps.dimensions import DIMENSIONS, Dimension
from aggverify.steps.layouts import CpKind, Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

_FIRST: tuple[tuple[str, str, int, CpKind], ...] = (
    # a prompt group over two micro-batches, and over two ranks
    ("1/1 2/111; 3/11", "0 1,2", 1, "zigzag"),
    ("1/1 2/111; 3/11", "0,2 | 1", 1, "zigzag"),
    ("1/1; 2/111", "0 | 1", 1, "zigzag"),
    ("1/1; 2/111", "0 1", 1, "zigzag"),
    ("1/1; 2/111; 3/11", "0 1,2", 1, "zigzag"),
    ("1/1; 2/111; 3/11; 1/1111", "0 | 1 | 2 | 3", 1, "zigzag"),
    ("2/11+3/111 4/1111", "0,1,2", 1, "zigzag"),
    ("3/1+1/11; 2/111", "0,1 2", 1, "zigzag"),
    ("3/1111111", "0", 2, "zigzag"),
    ("3/1111111 5/11", "0,1", 2, "contiguous"),
    ("3/1111111 5/11", "0,1", 2, "gathered"),
    ("3/1111111 5/11", "0,1", 2, "bshd"),
    ("3/1111111", "0", 4, "zigzag"),
)
"""Cases of every dimension; only if any is refused are all stored cases run as well."""
_EVIDENCE = 3
"""Least number of steps that show a dimension to be refused; all that have it must be."""


def asked_first() -> tuple[Case, ...]:
    """Return the steps a candidate may refuse."""
    found = []
    for text, cells, cp, kind in _FIRST:
        step = parse_step(text)
        found.append(Case(step, Layout(parse_micro_batches(cells), cp, kind), plain_losses(step)))
    return tuple(found)


def settled(subject: Subject, executor: Executor) -> Subject:
    """Return the subject with what it refuses: every check is judged on the rest."""
    space = spread(subject, min_units=1)
    cases = [case for case in asked_first() if case in space]
    known = dict(zip(cases, executor.run(subject, cases), strict=True))
    if not any(map(refusal, known.values())):
        return subject
    sizes = subject.max_world, space.cp_kinds
    more = [c for c in (*hard_cases(), *grid(*sizes), *more_cases(*sizes)) if c in space]
    more = [c for c in dict.fromkeys(c for m in more for c in (m, m.trivial)) if c not in known]
    known |= zip(more, executor.run(subject, more), strict=True)
    return subject.knowing(refused=tuple(refused(known)))


def refused(known: Mapping[Case, Execution]) -> Iterator[Refused]:
    """Yield the dimensions that account for all refusals, none where they do not."""
    left = {case for case, execution in known.items() if refusal(execution)}
    declined = [pair for pair in (_declined(d, known) for d in DIMENSIONS) if pair is not None]
    found = []
    for one, cases in declined:
        if cases & left:
            found.append(one)
            left -= cases
    if not left:  # a refusal without any of them: it raises for another reason
        yield from found


def _declined(
    dimension: Dimension, known: Mapping[Case, Execution]
) -> tuple[Refused, set[Case]] | None:
    """Return the refusal of a dimension, and the cases that it covers.

    None unless all cases beyond one of its sizes are refused, with enough steps among them.
    """
    sizes = {case: dimension.size(case) for case in known}
    for beyond in range(1, max(sizes.values(), default=1)):
        cases = {case for case, size in sizes.items() if size > beyond}
        refusals = [refusal(known[case], dimension.concerned(case)) for case in cases]
        if all(refusals) and len({case.step for case in cases}) >= _EVIDENCE:
            first = min(cases, key=lambda case: case.size)
            words = refusal(known[first], dimension.concerned(first)) or ""
            return Refused(dimension.feature, words, beyond), cases
    return None
