"""Make a failing case smaller by leaving parts of it out, as far as the finding allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

from aggverify.checks import Finding
from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.run.search.dedup import same_failure
from aggverify.run.search.pipeline import JudgeCases
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.reordering import renamed

MOST = 150
"""Cases tried at most: a finding is worth some tenths of a second, a hang a few seconds."""
BATCH = 4
MANY = 8
"""Ranks, micro-batches or samples of one from which on half of them are left out at once."""
SHORT = 8
"""Tokens up to which each one is tried alone."""


def reduced(finding: Finding, judge: JudgeCases, space: Space) -> Finding:
    """Return the finding on the smallest case that shows it, by leaving out and losses of 0."""
    tried = {finding.case}
    costly = finding.traits.costs_a_world
    while len(tried) <= MOST:
        less = chain(smaller(finding.case), () if costly else plainer(finding.case))
        candidates = (c for c in less if c not in tried and c in space)
        found = None
        while found is None and len(tried) <= MOST:
            batch = list(islice(candidates, 1 if costly else BATCH))
            if not batch:
                return finding
            tried.update(batch)
            found = next((f for f in judge(batch) if same_failure(finding, f)), None)
        finding = found or finding
    return finding


def _first_half(cell: tuple[int, ...]) -> tuple[int, ...]:
    return cell[: -(-len(cell) // 2)]


def _second_half(cell: tuple[int, ...]) -> tuple[int, ...]:
    return cell[len(cell) // 2 :]


_HALVES = (_first_half, _second_half)


def smaller(case: Case) -> Iterator[Case]:
    """Yield the case without one of its parts, the largest parts first."""
    layout, step = case.layout, case.step
    cells = layout.micro_batches
    if not layout.is_trivial:
        yield case.trivial
    if layout.cp_size > 1:
        yield case.with_layout(Layout(cells))
        for size in range(2, layout.cp_size):
            yield case.with_layout(replace(layout, cp_size=size))
    if layout.dp_size > MANY:
        yield _restricted(case, cells[: layout.dp_size // 2])
    if layout.dp_size > 1:
        for d in range(layout.dp_size):
            yield _restricted(case, (*cells[:d], *cells[d + 1 :]))
    if layout.num_microbatches > MANY:
        yield _restricted(case, tuple(rank[: layout.num_microbatches // 2] for rank in cells))
    if layout.num_microbatches > 1:
        for k in range(layout.num_microbatches):
            yield _restricted(case, tuple((*rank[:k], *rank[k + 1 :]) for rank in cells))
    if max(map(len, chain(*cells))) > MANY:
        for half in _HALVES:
            yield _restricted(case, tuple(tuple(half(c) for c in rank) for rank in cells))
    for i in range(len(step.samples)):
        without = tuple(tuple(tuple(j for j in c if j != i) for c in rank) for rank in cells)
        if all(cell for rank in without for cell in rank):
            yield _restricted(case, without)
    for i, sample in enumerate(step.samples):
        for kept in _parts(sample.response_length):
            yield _cut(case, i, kept)
        for prompt in sorted({1, sample.prompt_length // 2, sample.prompt_length - 1} - {0}):
            if prompt < sample.prompt_length:
                yield replace(case, step=_replaced(step, i, replace(sample, prompt_length=prompt)))
    if layout.dp_size == 2:
        # Half the samples on as many ranks: for a failure that needs several, of any kind.
        for rank in cells:
            one = _restricted(case, (rank,))
            yield one.with_layout(replace(one.layout, cp_size=2 * layout.cp_size))
    if case.dtype != "float64":
        yield replace(case, dtype="float64")


def plainer(case: Case) -> Iterator[Case]:
    """Yield the case with every sample a rollout; ids without gaps; all losses 0; one loss 0."""
    if len(case.step.samples) > case.step.num_rollouts:
        alone = Step(tuple(replace(s, rollout=n) for n, s in enumerate(case.step.samples)))
        yield replace(case, step=alone)
    if (plain := _numbered(case.step)) != case.step:
        yield replace(case, step=plain)
    nonzero = [t for t, x in enumerate(case.losses) if x != 0]
    if nonzero:
        yield case.with_losses((0.0,) * len(case.losses))
    for t in nonzero if 1 < len(nonzero) <= SHORT else ():
        yield case.with_losses((*case.losses[:t], 0.0, *case.losses[t + 1 :]))


def _numbered(step: Step) -> Step:
    """Ids from 0 on, in their order."""
    groups, rollouts = sorted(step.groups), sorted(step.rollouts)
    return renamed(
        step, [groups.index(g) for g in step.groups], [rollouts.index(r) for r in step.rollouts]
    )


def _parts(length: int) -> Iterator[tuple[int, ...]]:
    """Halves; of a long response smaller parts off its end.

    All tokens but one, any one of a short response, else the first or the last.
    """
    tokens = tuple(range(length))
    if length > 3:
        yield tokens[: length // 2]
        yield tokens[length // 2 :]
    for part in (4, 16, 64, 256, 1024):
        if length > 2 * part and length > SHORT:
            yield tokens[: -(length // part)]
    if length > 1:
        for t in tokens if length <= SHORT else (0, length - 1):
            yield tokens[:t] + tokens[t + 1 :]


def _restricted(case: Case, cells: tuple[tuple[tuple[int, ...], ...], ...]) -> Case:
    """Only the samples of these cells, in their order."""
    kept = sorted(i for rank in cells for cell in rank for i in cell)
    number = {old: new for new, old in enumerate(kept)}
    dealt = tuple(tuple(tuple(number[i] for i in cell) for cell in rank) for rank in cells)
    offsets, samples = case.step.offsets, case.step.samples
    losses = [
        x for i in kept for x in case.losses[offsets[i] : offsets[i] + samples[i].response_length]
    ]
    layout = Layout(dealt, case.layout.cp_size, case.layout.cp_kind)
    return Case(Step(tuple(samples[i] for i in kept)), layout, tuple(losses), case.dtype)


def _cut(case: Case, i: int, kept: tuple[int, ...]) -> Case:
    """Only these response tokens of sample i."""
    sample, start = case.step.samples[i], case.step.offsets[i]
    mask, original = sample.loss_mask, sample.original_mask
    short = replace(
        sample,
        loss_mask=bytes(mask[t] for t in kept),
        original_mask=None if original is None else bytes(original[t] for t in kept),
    )
    own = tuple(case.losses[start + t] for t in kept)
    losses = (*case.losses[:start], *own, *case.losses[start + sample.response_length :])
    return replace(case, step=_replaced(case.step, i, short), losses=losses)


def _replaced(step: Step, i: int, sample: Sample) -> Step:
    return Step((*step.samples[:i], sample, *step.samples[i + 1 :]))
