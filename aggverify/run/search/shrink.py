"""A finding on the smallest case.

It is the first of all small ones that shows it, or one without whatever can be left out.

Making a case smaller step by step can end in more than one place; an order of all small ones ends
in one. Where none of them shows it, leaving out is what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from aggverify.checks import Finding
from aggverify.generation.enumeration import Box, every_case
from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.run.search.dedup import same_failure
from aggverify.run.search.pipeline import JudgeCases
from aggverify.run.search.shrink_passes import reduced
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind
from aggverify.steps.reordering import renamed

TOKENS = 3
"""Response tokens, at most, of all samples of a listed case."""
RANKS = 2
MOST = 160
"""Cases of either kind tried at most: some tenths of a second."""
FEW = 2
"""Cases tried at most where each of them costs a world of ranks."""
BATCH = 16


def shrink(finding: Finding, judge: JudgeCases, space: Space) -> Finding:
    """Return the same finding on the smallest case found."""
    if finding.case not in space:  # on the one rank that layouts are compared with
        space = replace(space, min_units=1)
    return reduced(shrink_by_listing(finding, judge, space) or finding, judge, space)


def shrink_by_listing(finding: Finding, judge: JudgeCases, space: Space) -> Finding | None:
    """Return the same finding on the first of the smallest cases that shows it, if any does.

    The plain ones come first: they are few, and one that shows it leaves less to try.
    """
    costly = finding.traits.costs_a_world
    best: Finding | None = None
    for cases in (plain_cases(space), smallest_cases(space)):
        size = (best or finding).case.size
        below = [case for case in cases if case.size < size]
        best = _first(finding, below[: FEW if costly else MOST], judge, costly) or best
    return best


def _first(
    wanted: Finding, cases: Sequence[Case], judge: JudgeCases, costly: bool
) -> Finding | None:
    """Return the first case that shows it, tried few at a time first: most are found at once."""
    tried, size = 0, 1
    while tried < len(cases):
        for found in judge(list(cases[tried : tried + size])):
            if same_failure(wanted, found):
                return found
        tried += size
        size = 1 if costly else min(2 * size, BATCH)
    return None


@lru_cache(maxsize=64)
def plain_cases(space: Space) -> tuple[Case, ...]:
    """Those of the smallest cases with nothing masked and every sample its own prompt."""
    return tuple(case for case in smallest_cases(space) if _is_plain(case))


@lru_cache(maxsize=64)
def smallest_cases(space: Space) -> tuple[Case, ...]:
    """Return all cases of a space up to TOKENS and RANKS, smallest first.

    Then with the fewest masks, shared prompts and shared rollouts.
    """
    cases = (varied for case in _every(space.cp_kinds) for varied in _varied(case, space))
    return tuple(sorted((case for case in cases if case in space), key=_order))


def _order(case: Case) -> tuple[object, ...]:
    step, layout = case.step, case.layout
    return (
        case.size,
        len(case.masked_tokens()),
        any(s.original_mask is not None for s in step.samples),
        len(step.samples) - step.num_groups,
        len(step.samples) - step.num_rollouts,
        not _has_own_prompts(case),
        layout.cp_kind != "zigzag",
        layout.cp_kind,
    )


def _is_plain(case: Case) -> bool:
    return _has_own_prompts(case) and not case.masked_tokens()


def _has_own_prompts(case: Case) -> bool:
    """Whether every sample is its own prompt and rollout, numbered in order."""
    return all(s.group == s.rollout == i for i, s in enumerate(case.step.samples))


@lru_cache(maxsize=8)
def _every(kinds: tuple[CpKind, ...]) -> tuple[Case, ...]:
    """Every step of up to TOKENS tokens on every layout of up to RANKS ranks."""
    found: list[Case] = []
    for samples in range(1, TOKENS + 1):
        box = Box(samples, TOKENS + 1 - samples, RANKS, kinds, fan_out=True)
        found += (
            case.with_losses(_losses(case.step))
            for case in every_case(box)
            if len(case.step.samples) == samples and case.step.num_response_tokens <= TOKENS
        )
    return tuple(found)


def _losses(step: Step) -> tuple[float, ...]:
    """1, -2, 3, -4: different, of both signs, and no order of samples sorts them."""
    return tuple(float((-1) ** t * (t + 1)) for t in range(step.num_response_tokens))


def _varied(case: Case, space: Space) -> Iterator[Case]:
    """Yield the case, and those that enumeration takes to be the same but the space does not."""
    yield case
    step, layout = case.step, case.layout
    if space.rejects and case.masked_tokens():
        yield replace(case, step=Step(tuple(map(_rejected, step.samples))))
    if space.shuffled and len(step.samples) > 1:
        turned = range(step.num_groups)[::-1], range(step.num_rollouts)[::-1]
        yield replace(case, step=renamed(step, *turned))
        cells = tuple(tuple(cell[::-1] for cell in rank) for rank in layout.micro_batches)
        if cells != layout.micro_batches:
            yield case.with_layout(replace(layout, micro_batches=cells))


def _rejected(sample: Sample) -> Sample:
    """Make masked tokens ones that were rejected afterwards."""
    if sample.num_unmasked == sample.response_length:
        return sample
    return replace(sample, original_mask=b"\1" * sample.response_length)
