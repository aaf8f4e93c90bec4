"""Cases for what a reducer has not run yet.

For a condition that went one way only, they are around the numbers that it names. An outcome that
few kinds of case have had is tried on the others.

Numbers next to a condition are tried because they are cheap and exact: a count compared with 64
is reached by 63, 64 and 65 tokens. A distance to the other branch, read off live frames, was tried
and is gone: it found 9 of 602 wrong reducers, five of them written for it, and the four others are
found without it. ``reports/shapes.md`` has what is found by steering alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest

from aggverify.generation.constants import MOST_TOKENS, around
from aggverify.generation.shapes import holed, levels
from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.steps import case_tags
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.trainer.conditions import Condition

Ran = Mapping[int, int]
"""Outcomes of conditions, by ``trainer.conditions.outcome``, with the kinds of case they ran on."""


def steered(
    space: Space,
    conditions: Sequence[Condition],
    constants: Sequence[float],
    ran: Ran,
    examples: Mapping[int, Case],
) -> Iterator[Case]:
    """Cases of the space, each once, in turn for each outcome that is missing or rare.

    ``constants``: of the whole code, for a condition that names no number. ``examples``: a case for
    each outcome that ran.
    """
    missing = [
        _like(space, around(space, condition.numbers or constants), examples[seen])
        for n, condition in enumerate(conditions)
        for seen, other in ((2 * n, 2 * n + 1), (2 * n + 1, 2 * n))
        if seen in ran and other not in ran
    ]
    rare = sorted(ran, key=lambda outcome: (ran[outcome].bit_count(), outcome))
    again = [_again(space, examples[o], case_tags.decode(case_tags.ALL & ~ran[o])) for o in rare]
    found = (case for row in zip_longest(*missing, *again) for case in row if case is not None)
    yield from dict.fromkeys(found)


def _like(space: Space, cases: Iterable[Case | None], example: Case) -> Iterator[Case]:
    """Yield each case, and before it one that also is of all kinds that the example is of.

    A condition is reached on cases like the one that has reached it, and may be on no others.
    """
    wanted = [kind for kind in case_tags.decode(case_tags.tags(example)) if kind in _MADE]
    for case in filter(None, cases):
        made = case
        for kind in wanted:
            if kind not in case_tags.decode(case_tags.tags(made)):
                made = of_kind(space, made, kind) or made
        yield from (each for each in dict.fromkeys((made, case)) if each in space)


def _again(space: Space, case: Case, missing: Sequence[str]) -> Iterator[Case]:
    for kind in missing:
        made = of_kind(space, case, kind) if kind in _MADE else None
        if made is not None and made in space:
            yield made


def of_kind(space: Space, case: Case, kind: str) -> Case | None:
    """Return the case changed as little as makes it of that kind.

    None where that is not possible.
    """
    if any(sample.original_mask is not None for sample in case.step.samples):
        return None
    made = _MADE[kind](space, case)
    return None if made is None or made.step.num_response_tokens > MOST_TOKENS else made


def _on_one_rank(space: Space, case: Case) -> Case:
    return case.trivial


def _twice(case: Case) -> tuple[Step, tuple[tuple[tuple[int, ...], ...], ...]]:
    """Return the step with a copy of all its samples, and the cells of the copy."""
    samples, cells = case.step.samples, case.layout.micro_batches
    rollouts, groups = 1 + max(s.rollout for s in samples), 1 + max(s.group for s in samples)
    more = [replace(s, rollout=s.rollout + rollouts, group=s.group + groups) for s in samples]
    shifted = tuple(tuple(tuple(i + len(samples) for i in c) for c in rank) for rank in cells)
    return Step((*samples, *more)), shifted


def _data_parallel(space: Space, case: Case) -> Case:
    step, more = _twice(case)
    layout = replace(case.layout, micro_batches=(*case.layout.micro_batches, *more))
    return Case(step, layout, case.losses * 2, case.dtype)


def _micro_batches(space: Space, case: Case) -> Case:
    step, more = _twice(case)
    rows = zip(case.layout.micro_batches, more, strict=True)
    layout = replace(case.layout, micro_batches=tuple((*mine, *own) for mine, own in rows))
    return Case(step, layout, case.losses * 2, case.dtype)


def _context_parallel(space: Space, case: Case) -> Case | None:
    if not all(sample.prompt_length for sample in case.step.samples):
        return None
    kind = (space.cp_kinds or ("zigzag",))[0]
    return case.with_layout(Layout(case.layout.micro_batches, 2, kind))


def _with_sample(case: Case, place: int, sample: Sample) -> Case:
    samples = list(case.step.samples)
    samples[place] = sample
    return replace(case, step=Step(tuple(samples)))


def _hole(space: Space, case: Case) -> Case:
    samples = case.step.samples
    longest = max(range(len(samples)), key=lambda i: samples[i].response_length)
    mask = holed(samples[longest].response_length)
    return _with_sample(case, longest, replace(samples[longest], loss_mask=mask))


def _fully_masked(space: Space, case: Case) -> Case | None:
    samples = case.step.samples
    shortest = min(range(len(samples)), key=lambda i: samples[i].response_length)
    blank = replace(samples[shortest], loss_mask=bytes(samples[shortest].response_length))
    return _with_sample(case, shortest, blank) if len(samples) > 1 else None


def _fan_out(space: Space, case: Case) -> Case | None:
    """Make the second rollout of a prompt another sample of its first."""
    first: dict[int, int] = {}
    for n, sample in enumerate(case.step.samples):
        if first.setdefault(sample.group, sample.rollout) != sample.rollout:
            return _with_sample(case, n, replace(sample, rollout=first[sample.group]))
    return None


def _in_dtype(dtype: str, space: Space, case: Case) -> Case | None:
    """With losses that are exact in 16 bits."""
    low = case.with_losses(levels(case.step))
    return replace(low, dtype=dtype) if dtype in space.dtypes else None


_MADE: Mapping[str, Callable[[Space, Case], Case | None]] = {
    case_tags.ONE_RANK: _on_one_rank,
    "data parallel": _data_parallel,
    "context parallel": _context_parallel,
    "micro-batches": _micro_batches,
    "hole": _hole,
    "fully masked": _fully_masked,
    "fan-out": _fan_out,
    "bfloat16": partial(_in_dtype, "bfloat16"),
    "float16": partial(_in_dtype, "float16"),
}
"""How a case of each kind is made; one of data or context parallelism is on several ranks."""
