"""T1 to T4: the result does not depend on micro-batches, data or context parallelism."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain

import numpy as np

from aggverify.checks.base import Check, Finding, failure_finding
from aggverify.checks.comparison import lowest_precision, worst_weight
from aggverify.checks.nonlinear import judge_two
from aggverify.execution.laboratory import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout

_DTYPES = ("float64", "float32")


def cp_kinds(subject: Subject) -> tuple[CpKind, ...]:
    """The context-parallel layouts this subject can be given; empty when it sees none."""
    if "context-parallel" not in subject.features:
        return ()
    optional: tuple[CpKind, ...] = ("contiguous", "gathered")
    return ("zigzag", *(kind for kind in optional if kind in subject.features))


def _space(subject: Subject, max_dp: int, max_cp: int, max_microbatches: int) -> Space | None:
    kinds = cp_kinds(subject)
    space = Space(
        max_dp=min(max_dp, subject.max_world),
        max_cp=min(max_cp, subject.max_world) if kinds else 1,
        max_microbatches=max_microbatches,
        max_world=subject.max_world,
        cp_kinds=kinds or ("zigzag",),
        min_units=2,
        fan_out="fan-out" in subject.features,
        empty_samples=False,
        group_size=subject.group_size,
        whole_groups=subject.refuses_split_groups,
        uniform="ragged-micro-batches" not in subject.features,
        dtypes=("float64",) if subject.nonlinear else _DTYPES,
    )
    return space if max(space.max_dp, space.max_cp, space.max_microbatches) > 1 else None


def _judge(name: str, code: str) -> Callable[[Subject, Sequence[Execution]], Finding | None]:
    def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
        *control, spread = executions
        if any(e.weights is None or not np.isfinite(e.weights).all() for e in control):
            return None  # wrong before any layout: the formula check's to tell
        failed = failure_finding(name, subject, spread)
        if failed is not None or spread.weights is None:
            return failed
        return judge_layout(name, code, subject, control, spread)

    return judge


def judge_layout(
    name: str, code: str, subject: Subject, control: Sequence[Execution], spread: Execution
) -> Finding | None:
    """Compare with the oracle, unless the control (the trivial layout) already differs from it:
    then with the control."""
    assert spread.weights is not None
    if subject.nonlinear:
        return judge_two(name, code, subject, control[0], spread)
    case, precision = spread.case, lowest_precision(subject, spread.case)
    expected, roundings, reference = subject.expected(case.step), subject.roundings, "the oracle"
    for trivial in control:
        assert trivial.weights is not None
        if expected is None or worst_weight(trivial.weights, expected, roundings, precision):
            # Both sides carry the candidate's own roundings now.
            expected = tuple(Fraction(w) for w in trivial.weights.tolist())
            roundings, reference = 2 * roundings, "one rank, one micro-batch"
    assert expected is not None  # without an oracle there is always a control
    found = worst_weight(spread.weights, expected, roundings, precision)
    if found is None:
        return None
    return Finding(
        code,
        name,
        "",
        case,
        subject.mode,
        expected,
        tuple(spread.weights.tolist()),
        reference,
        found.token,
        found.error,
        found.bound,
    )


def _merge(layout: Layout, *, dp: bool, cp: bool, micro_batches: bool) -> Layout:
    """Keep the named dimensions of a layout, fold the others into one, samples ascending: their
    order is another check's."""
    cells = layout.micro_batches
    if not micro_batches:
        cells = tuple((tuple(sorted(chain.from_iterable(rank))),) for rank in cells)
    if not dp:
        cells = (tuple(tuple(sorted(chain.from_iterable(c))) for c in zip(*cells, strict=True)),)
    return replace(layout, micro_batches=cells, cp_size=layout.cp_size if cp else 1)


def _check(
    name: str, code: str, title: str, tests: str, *, dp: int, cp: int, micro_batches: int
) -> Check:
    def project(case: Case) -> Case:
        layout = _merge(case.layout, dp=dp > 1, cp=cp > 1, micro_batches=micro_batches > 1)
        return case.with_layout(layout)

    return Check(
        name=name,
        title=title,
        tests=tests,
        space=lambda subject: _space(subject, dp, cp, micro_batches),
        variants=lambda case: (case.trivial, case),
        judge=_judge(name, code),
        project=project,
        control_first=True,
    )


MICRO_BATCHES = _check(
    "independent_of_micro_batches",
    "AGV202",
    "accumulated over micro-batches, the weights are the whole batch's",
    "T1",
    dp=1,
    cp=1,
    micro_batches=4,
)
DATA_PARALLEL = _check(
    "independent_of_data_parallel_size",
    "AGV203",
    "spread over data-parallel ranks, the weights are the whole batch's",
    "T2",
    dp=8,
    cp=1,
    micro_batches=1,
)
CONTEXT_PARALLEL = _check(
    "independent_of_context_parallel_size",
    "AGV201",
    "sliced over context-parallel ranks, the weights are the whole sample's",
    "T3",
    dp=1,
    cp=8,
    micro_batches=1,
)
COMBINED = _check(
    "independent_of_the_combination",
    "AGV204",
    "over every factorisation of ranks and micro-batches, the weights stay",
    "T4",
    dp=8,
    cp=4,
    micro_batches=3,
)
