"""Worlds larger than any that is run: all ranks one after another, in one process.

For reducers that issue no collective; where one does, in its trace, nothing can be judged here.
A finding is shrunk to real ranks where that is possible, and is otherwise confirmed with a process
for each rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from aggverify.checks.base import RIGHT_FORMULA, Check, Finding
from aggverify.checks.shapes import judge_as_usual
from aggverify.checks.spaces import cp_kinds, spread
from aggverify.engines.emulated import EmulatedEngine
from aggverify.execution.budget import MAX_WORLD
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import APART, RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.shapes import Builder, holed
from aggverify.generation.space import Space
from aggverify.steps.case import Case

NAME = "holds_in_larger_worlds"
MOST = 64
"""Ranks, and micro-batches of each."""
SHAPE = "virtual"
_SIZES = (
    (16, 1, 1),
    (1, 16, 1),
    (9, 1, 2),
    (4, 4, 1),
    (64, 1, 1),
    (1, 32, 1),
    (2, 1, 64),
    (8, 8, 1),
    (12, 2, 2),
    (5, 3, 1),
    (1, 64, 1),
    (32, 1, 4),
    (1, 9, 3),
    (3, 7, 1),
    (16, 4, 1),
    (48, 1, 1),
)
"""Data parallel, context parallel, micro-batches: powers of two, and what is next to them."""


def space(subject: Subject) -> Space | None:
    """Return the layouts that the subject can be given, as large as it goes.

    None where there is no such world.
    """
    if not isinstance(subject.engine, EmulatedEngine) or subject.found.communicates:
        return None
    if subject.claim.max_world < MAX_WORLD:
        return None  # the person's own limit
    if subject.max_world == 1:
        return None  # the machine's, which leaves nothing to be laid out
    kinds = tuple(kind for kind in cp_kinds(subject) if kind != "gathered")
    found = spread(subject, cp_kinds=kinds or ("zigzag",), max_world=MOST, dtypes=("float64",))
    return replace(
        found,
        max_dp=_most(subject, "data-parallel", found.max_dp),
        max_cp=_most(subject, "context-parallel", found.max_cp) if kinds else 1,
        max_microbatches=_most(subject, "micro-batches", found.max_microbatches),
    )


def _most(subject: Subject, feature: str, size: int) -> int:
    limit = subject.most(feature)
    return size if size == 1 else min(MOST, MOST if limit is None else limit)


def _listed(subject: Subject) -> Iterator[Case]:
    wanted = space(subject)
    if wanted is None:
        return
    build, kinds = Builder(wanted), wanted.cp_kinds
    three = (holed(70), b"\1\1\1", b"\1")
    masks = [three[n % len(three)] for n in range(subject.rows or len(three))]
    made = (build.case(masks, size, kind=kinds[n % len(kinds)]) for n, size in enumerate(_SIZES))
    yield from islice(filter(None, made), subject.claim.budget.shapes[SHAPE])


def _variants(case: Case) -> tuple[Case | RunSpec, ...]:
    """Return the step on one rank, and as laid out: real ranks as far as they go."""
    world = case.layout.world_size
    if world <= MAX_WORLD:
        return case.trivial, case
    return case.trivial, RunSpec(case, virtual=tuple(range(world)))


def _confirming(case: Case) -> tuple[Case | RunSpec, ...]:
    trivial, laid_out = _variants(case)
    return trivial, replace(laid_out, where=APART) if isinstance(laid_out, RunSpec) else laid_out


def _judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    if any(execution.communicates for execution in executions):
        return None
    return judge_as_usual(NAME, subject, executions)


CHECK = Check(
    name=NAME,
    title="worlds of up to 64 ranks, one after another in one process",
    space=space,
    variants=_variants,
    confirming=_confirming,
    judge=_judge,
    only=_listed,
    control_first=True,
    not_applicable=(
        "its ranks cannot be run one after another: it communicates, or its engine does, or "
        "--world limits how many there are, or there is memory for one rank only"
    ),
    last=True,
    needs=(RIGHT_FORMULA,),
    linear_only=True,
)
