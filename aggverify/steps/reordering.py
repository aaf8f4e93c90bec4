"""The same step in another order: samples, ids, micro-batches and ranks rearranged."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from aggverify.oracles import Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout

Cells = tuple[tuple[tuple[int, ...], ...], ...]
"""Sample indices per rank and micro-batch."""


def reordered(case: Case, order: Sequence[int], kept: Cells | None = None) -> Case:
    """Return the case with sample ``order[j]`` in place j; every cell keeps its samples.

    ``kept``: the cells less the samples that are not in ``order``.
    """
    step = Step(tuple(case.step.samples[i] for i in order))
    place = {i: j for j, i in enumerate(order)}
    cells = tuple(
        tuple(tuple(place[i] for i in cell) for cell in rank)
        for rank in kept or case.layout.micro_batches
    )
    losses = rearranged(case.step, case.losses, order)
    return replace(case, step=step, layout=replace(case.layout, micro_batches=cells), losses=losses)


def rearranged(step: Step, values: Sequence[float], order: Sequence[int]) -> tuple[float, ...]:
    """One value per response token of a step, for the step with ``order[j]`` in place j."""
    spans = ((step.offsets[i], step.samples[i].response_length) for i in order)
    return tuple(x for start, length in spans for x in values[start : start + length])


def renamed(step: Step, groups: Sequence[int], rollouts: Sequence[int]) -> Step:
    """Return the step with the n-th prompt group called ``groups[n]``, and rollouts likewise."""
    group = dict(zip(step.groups, groups, strict=True))
    rollout = dict(zip(step.rollouts, rollouts, strict=True))
    return Step(
        tuple(replace(s, group=group[s.group], rollout=rollout[s.rollout]) for s in step.samples)
    )


def in_order(layout: Layout) -> bool:
    """Whether the cells hold the samples by index, as a driver that deals rows in order does."""
    placed = [i for _, _, cell in layout.cells() for i in cell]
    return placed == sorted(placed)


def by_groups(step: Step, groups: Sequence[int]) -> list[int]:
    """Return the order of samples that puts prompt groups, given by number, one after the other."""
    members = list(step.groups.values())
    return [i for n in groups for i in members[n]]


def tidied(case: Case) -> tuple[Case, list[int]]:
    """Return the case with ids ascending and side by side, and the order of samples for it.

    Micro-batches of a rank and ranks stand in order of their first samples, unless the rows are
    dealt in order: then they are dealt again.
    """
    samples = case.step.samples
    order = sorted(range(len(samples)), key=lambda i: (samples[i].group, samples[i].rollout, i))
    tidy = reordered(case, order)
    if in_order(case.layout):
        return replace(tidy, layout=case.layout), order
    ranks = [sorted(tuple(sorted(c)) for c in rank) for rank in tidy.layout.micro_batches]
    layout = replace(tidy.layout, micro_batches=tuple(sorted(map(tuple, ranks))))
    return replace(tidy, layout=layout), order


def interleaved(case: Case) -> Case:
    """Return the case with samples of one rollout or prompt group apart in every micro-batch.

    The last sample of every rollout comes first, then the last but one of each, and so on; among
    these the last of every prompt group first.
    """
    of_rollout, of_group = (
        {i: from_end for members in units.values() for from_end, i in enumerate(reversed(members))}
        for units in (case.step.rollouts, case.step.groups)
    )
    cells = tuple(
        tuple(tuple(sorted(cell, key=lambda i: (of_rollout[i], of_group[i], -i))) for cell in rank)
        for rank in case.layout.micro_batches
    )
    return case.with_layout(replace(case.layout, micro_batches=cells))


def shuffled(case: Case) -> Case:
    """Return the case in a random order whose seed is its own sizes: the same one every time.

    Where rows are dealt in order, whole prompt groups change places.
    """
    step = case.step
    rng = random.Random(len(step.samples) * 1009 + step.num_response_tokens)
    groups, rollouts = list(range(step.num_groups)), list(range(step.num_rollouts))
    rng.shuffle(groups)
    rng.shuffle(rollouts)
    if in_order(case.layout):
        order = by_groups(step, groups)
        moved = replace(reordered(case, order), layout=case.layout)
    else:
        order = list(range(len(step.samples)))
        rng.shuffle(order)
        moved = reordered(case, order)
    return replace(moved, step=renamed(moved.step, groups, rollouts))
