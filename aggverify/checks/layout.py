"""T1 to T4: the result does not depend on micro-batches, data or context parallelism."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain

from aggverify.checks.base import LAYOUT, Check, Need
from aggverify.checks.judging import judge_spread
from aggverify.checks.spaces import spread
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout


def _merged(layout: Layout, *, dp: bool, cp: bool, micro_batches: bool) -> Layout:
    """Keep the named dimensions of a layout, fold the others into one, samples ascending.

    The order of samples is another check's to vary.
    """
    cells = layout.micro_batches
    if not micro_batches:
        cells = tuple((tuple(sorted(chain.from_iterable(rank))),) for rank in cells)
    if not dp:
        cells = (tuple(tuple(sorted(chain.from_iterable(c))) for c in zip(*cells, strict=True)),)
    return replace(layout, micro_batches=cells, cp_size=layout.cp_size if cp else 1)


def _check(
    name: str,
    code: str,
    title: str,
    tests: str,
    *,
    dp: int = 1,
    cp: int = 1,
    micro_batches: int = 1,
    needs: tuple[Need, ...] = (),
    max_examples: int | None = 75,
) -> Check:
    def space(subject: Subject) -> Space | None:
        found = spread(subject, dp=dp, cp=cp, micro_batches=micro_batches)
        return found if max(found.max_dp, found.max_cp, found.max_microbatches) > 1 else None

    def project(case: Case) -> Case:
        layout = _merged(case.layout, dp=dp > 1, cp=cp > 1, micro_batches=micro_batches > 1)
        return case.with_layout(layout)

    return Check(
        name=name,
        title=title,
        tests=tests,
        space=space,
        variants=lambda case: (case.trivial, case),
        judge=partial(judge_spread, name, code),
        project=project,
        control_first=True,
        aspect=LAYOUT,
        needs=needs,
        max_examples=max_examples,
    )


MICRO_BATCHES = _check(
    "independent_of_micro_batches",
    "AGV202",
    "accumulated over micro-batches, the weights are the whole batch's",
    "T1",
    micro_batches=4,
)
DATA_PARALLEL = _check(
    "independent_of_data_parallel_size",
    "AGV203",
    "spread over data-parallel ranks, the weights are the whole batch's",
    "T2",
    dp=8,
)
CONTEXT_PARALLEL = _check(
    "independent_of_context_parallel_size",
    "AGV201",
    "sliced over context-parallel ranks, the weights are the whole sample's",
    "T3",
    cp=8,
)
COMBINED = _check(
    "independent_of_the_combination",
    "AGV204",
    "over every factorisation of ranks and micro-batches, the weights stay",
    "T4",
    dp=8,
    cp=4,
    micro_batches=3,
    needs=(Need(LAYOUT, "a single dimension already fails"),),
    max_examples=None,
)
