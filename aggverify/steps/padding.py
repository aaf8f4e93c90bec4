"""Padding added to a step and taken off again: what is no content and must change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.reordering import in_order, reordered


@dataclass(frozen=True, slots=True)
class Padding:
    """``columns``: masked tokens added behind every response.

    ``even``: before that, all responses are padded to the widest. ``dummy``: every micro-batch gets
    a fully masked copy of its first sample.
    """

    columns: int = 0
    even: bool = False
    dummy: bool = False


def padded(step: Step, layout: Layout, padding: Padding) -> tuple[Step, Layout]:
    """Return the step and layout with the padding, dummy samples at the end."""
    widest = max(s.response_length for s in step.samples) if padding.even else 0
    samples = [_wider(s, max(widest, s.response_length) + padding.columns) for s in step.samples]
    if not padding.dummy:
        return Step(tuple(samples)), layout
    ranks = []
    for rank in layout.micro_batches:
        cells = []
        for cell in rank:
            cells.append((*cell, len(samples)))
            first = samples[cell[0]]
            samples.append(replace_mask(first, bytes(first.response_length)))
        ranks.append(tuple(cells))
    return Step(tuple(samples)), replace(layout, micro_batches=tuple(ranks))


def replace_mask(sample: Sample, mask: bytes) -> Sample:
    """Return the sample with another mask, which is its original one too."""
    return Sample(sample.prompt_length, mask, sample.rollout, sample.group)


def _wider(sample: Sample, width: int) -> Sample:
    return replace_mask(sample, sample.loss_mask + bytes(width - sample.response_length))


def stripped(case: Case) -> tuple[Case, list[int]]:
    """Return the case without padding, and where each of its tokens stands in the padded one.

    Masked tokens behind the last unmasked one go (a fully masked response keeps one token), and so
    do fully masked samples whose rollout has another sample.
    """
    kept = _samples_with_content(case)
    cells = tuple(
        tuple(tuple(i for i in cell if i in kept) or cell[:1] for cell in rank)
        for rank in case.layout.micro_batches
    )
    order = sorted({*kept, *(i for rank in cells for cell in rank for i in cell)})
    bare = reordered(case, order, cells)
    spans = []
    for i in order:
        mask, start = case.step.samples[i].loss_mask, case.step.offsets[i]
        spans.append(range(start, start + max(len(mask.rstrip(b"\0")), 1)))
    samples = [
        replace_mask(s, s.loss_mask[: len(span)])
        for s, span in zip(bare.step.samples, spans, strict=True)
    ]
    places = [t for span in spans for t in span]
    losses = tuple(case.losses[t] for t in places)
    return replace(bare, step=Step(tuple(samples)), losses=losses), places


def _samples_with_content(case: Case) -> set[int]:
    """Return the samples with an unmasked token, and the first of each rollout without any."""
    samples = case.step.samples
    kept = {i for i, s in enumerate(samples) if s.num_unmasked}
    for members in case.step.rollouts.values():
        if not kept & set(members):
            kept.add(members[0])
    return kept


def fully_padded(case: Case) -> Case:
    """Return a case padded in every way that its layout allows.

    Rows dealt in order get no dummies: these stand at the end of the step, and so out of order.
    """
    padding = Padding(columns=1, even=True, dummy=not in_order(case.layout))
    return with_padding(case, padding)


def with_padding(case: Case, padding: Padding) -> Case:
    """Return the case padded, with losses of 1 where there were none."""
    step, layout = padded(case.step, case.layout, padding)
    losses: list[float] = []
    for i, sample in enumerate(step.samples):
        old = _losses(case, i) if i < len(case.step.samples) else ()
        losses += [*old, *[1.0] * (sample.response_length - len(old))]
    return replace(case, step=step, layout=layout, losses=tuple(losses))


def _losses(case: Case, sample: int) -> Sequence[float]:
    start = case.step.offsets[sample]
    return case.losses[start : start + case.step.samples[sample].response_length]
