"""Where reducers branch: long and sharded, 16-bit, many, sparse, around a constant of the code."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from aggverify.checks import empty
from aggverify.checks.base import RIGHT_FORMULA, Check, Finding
from aggverify.checks.comparison import LOW
from aggverify.checks.exhaustive import judge_any
from aggverify.checks.spaces import spread
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.constants import MOST_MICRO_BATCHES, shaped
from aggverify.generation.shapes import LONG, crowded
from aggverify.generation.space import Space
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout, dimensions

NAME = "holds_where_code_branches"
_DRAWN_MICRO_BATCHES = 8
"""A rank at most where cases are drawn: each of them has samples."""
MOST_TOKENS_NONLINEAR = 130
"""Of a response, where no weights are known and two runs are compared in every respect."""
_SHORT = (1, 2, 3, 4, 5) * 6
"""Most responses of a drawn step, so that a long one is seen next to them."""


def space(subject: Subject) -> Space:
    """All layouts, with far more micro-batches, samples and tokens than anywhere else."""
    longest = [int(c) + more for c in subject.found.constants for more in (-1, 0, 1)]
    most = MOST_TOKENS_NONLINEAR if subject.nonlinear else max(LONG)
    lengths = [c for c in (*longest[:30], *LONG) if 5 < c <= most]
    return spread(
        subject,
        micro_batches=MOST_MICRO_BATCHES,
        min_units=1,
        empty_samples=True,
        lengths=(*_SHORT, *lengths),
        holes=True,
        ids=True,
        dtypes=("float64",) if subject.nonlinear else ("float64", "float32", *LOW),
    )


def stored(subject: Subject) -> Sequence[Case]:
    """Return the listed cases, as many of each shape as the profile has time for."""
    most = subject.claim.budget.shapes
    found = subject.found
    own = space(subject)
    cases = shaped(own, found.constants, most, found.dtypes)
    # Last, and whatever the profile: it is a single case.
    cases = (*cases, *filter(None, [crowded(own)]))
    return list(filter(_is_for_any, cases)) if subject.nonlinear else cases


def _is_for_any(case: Case) -> bool:
    """Whether it is exact enough, and short enough, to compare two runs of any objective on."""
    few = case.step.num_response_tokens <= 2 * MOST_TOKENS_NONLINEAR
    return case.dtype == "float64" and few


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """As the check that such a step would belong to."""
    found = judge_as_usual(NAME, subject, executions)
    if found is None or found.message:
        return found
    return replace(found, message="; ".join(_remarkable(found.case, subject.found.constants)))


def judge_as_usual(name: str, subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """As the check that such a step would belong to, with the code of its layout."""
    code, seen = _code(executions[-1].case.layout), [_weights_only(e) for e in executions]
    return judge_any(name, code, subject, seen)


def _weights_only(execution: Execution) -> Execution:
    """Return it without an infinite loss: 16 bits may not hold the sum where weights are right."""
    low = execution.case.dtype in LOW and execution.value is None
    is_nan = any(math.isnan(loss) for rank in execution.local_losses for loss in rank)
    if low and not is_nan and execution.weights is not None:
        return replace(execution, value=Fraction(0))
    return execution


def _code(layout: Layout) -> str:
    match [*dimensions(layout)]:
        case ["cp_size"]:
            return "AGV201"
        case ["num_microbatches"]:
            return "AGV202"
        case ["dp_size"]:
            return "AGV203"
        case _:
            return "AGV204"


def _remarkable(case: Case, constants: Sequence[float]) -> Iterator[str]:
    """Yield what about the case no ordinary one has; and which number of the code is near."""
    step, layout = case.step, case.layout
    sizes = {
        "a response of {} tokens": (max(s.response_length for s in step.samples), 12),
        "a prompt of {} tokens": (max(s.prompt_length for s in step.samples), 36),
        "{} samples in a micro-batch": (max(len(cell) for _, _, cell in layout.cells()), 6),
        "{} micro-batches on a rank": (layout.num_microbatches, 4),
        "{} prompts in the step": (step.num_groups, 12),
        "an id of {}": (max(*step.groups, *step.rollouts), len(step.samples)),
    }
    for words, (size, usual) in sizes.items():
        if size > usual:
            near = [c for c in constants if c > usual and abs(size - c) <= 1]
            yield words.format(size) + "".join(f", and the code names {c:g}" for c in near[:1])
    if case.dtype in LOW:
        yield f"losses in {case.dtype}"


def _drawn(space: Space) -> Space:
    return replace(space, max_microbatches=min(space.max_microbatches, _DRAWN_MICRO_BATCHES))


CHECK = Check(
    name=NAME,
    title="long, sharded, 16-bit, many or sparse, and around every constant of its code",
    space=space,
    stored=stored,
    draws=_drawn,
    looks_at_branches=True,
    variants=empty.variants,
    judge=judge,
    control_first=True,
    last=True,
    needs=(RIGHT_FORMULA,),
)
