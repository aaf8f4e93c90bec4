"""One step of the size that is trained with.

It has hundreds of rollouts of up to 32,768 tokens, on all ranks that there may be. It shows what a
count, a chunk or a kernel's grid gets wrong only there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from aggverify.checks import scalar
from aggverify.checks.base import RIGHT_FORMULA, Check, Finding
from aggverify.checks.shapes import judge_as_usual
from aggverify.checks.spaces import spread
from aggverify.execution.budget import PRODUCTION
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout

NAME = "holds_at_production_size"
ROLLOUTS, GROUP, LONGEST = 512, 8, 32_768
_APART = 20_251
"""0.618 of the longest, and odd: its multiples are lengths that are spread evenly."""
_SIZES = ((4, 2, 4), (8, 1, 4), (2, 2, 4), (4, 1, 4), (1, 2, 4), (2, 1, 4), (1, 1, 4), (1, 1, 1))
"""Data parallel, context parallel, micro-batches: the first that there are ranks for is run."""


def space(subject: Subject) -> Space | None:
    """All ranks that there may be, and losses in the dtype of training; None without an oracle."""
    if (subject.mode is None and subject.oracle is None) or subject.rows is not None:
        return None
    dtypes, lengths = ("float32",), (LONGEST,)
    return spread(
        subject, cp=2, micro_batches=4, min_units=1, dtypes=dtypes, lengths=lengths, holes=True
    )


def case_of(
    rollouts: int, group: int, dp: int, cp: int, k: int, cp_kind: CpKind = "zigzag"
) -> Case:
    """Return a step of so many rollouts, about 16,400 tokens each, in groups of that size.

    Every rank has ``k`` micro-batches. ``rollouts`` must be a multiple of ``dp * k``.
    """
    step = _step(rollouts, group)
    each = rollouts // (dp * k)
    cells = [tuple(range(n * each, (n + 1) * each)) for n in range(dp * k)]
    ranks = tuple(tuple(cells[d * k : (d + 1) * k]) for d in range(dp))
    return Case(step, Layout(ranks, cp, cp_kind), _losses(step), "float32")


def _step(rollouts: int, group: int) -> Step:
    """Every fourth response has a block in its middle masked, as answers of tools are."""
    samples = []
    for i in range(rollouts):
        length = 1 + i * _APART % LONGEST
        mask = bytearray(b"\1" * length)
        if i % 4 == 3:
            mask[length // 3 : length // 2] = bytes(length // 2 - length // 3)
        samples.append(Sample(1 + i, bytes(mask), i, i // group))
    return Step(tuple(samples))


def _losses(step: Step) -> tuple[float, ...]:
    """Return losses of 0 but for the last token of every eighth response.

    Rounding of a sum of millions would explain nearly any reported loss.
    """
    losses = [0.0] * step.num_response_tokens
    for i in range(0, len(step.samples), GROUP):
        losses[step.offsets[i] + step.samples[i].response_length - 1] = 1.0 + i / len(step.samples)
    return tuple(losses)


def _listed(subject: Subject) -> Iterator[Case]:
    wanted = space(subject)
    if wanted is None:
        return
    for dp, cp, k in _SIZES:
        kind = wanted.cp_kinds[0] if cp > 1 else "zigzag"
        case = case_of(ROLLOUTS, subject.group_size or GROUP, dp, cp, k, kind)
        if case in wanted:
            yield case
            return


def _judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Its weights, all of them, and the reported loss."""
    found = judge_as_usual(NAME, subject, executions)
    if found is None and "loss-function" in subject.features:
        found = scalar.judge(subject, executions)
    return None if found is None else replace(found, check=NAME)


def _established(subject: Subject, cases: int) -> str:
    [case] = _listed(subject)
    step, layout = case.step, case.layout
    return (
        f"holds on a step of {step.num_rollouts} rollouts and {step.num_response_tokens:,} tokens "
        f"on {layout.world_size} ranks (dp={layout.dp_size} cp={layout.cp_size}, "
        f"{layout.num_microbatches} micro-batches a rank): every weight, and the reported loss"
    )


CHECK = Check(
    name=NAME,
    title="one step of 512 rollouts of up to 32,768 tokens",
    space=space,
    judge=_judge,
    only=_listed,
    only_with=PRODUCTION,
    not_applicable="there is no oracle to compare so large a step with, in all its layouts",
    waits_for="a step of millions of tokens is run",
    as_found=True,
    last=True,
    linear_only=True,
    needs=(RIGHT_FORMULA,),
    establishes=_established,
)
