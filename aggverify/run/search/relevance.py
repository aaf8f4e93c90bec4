"""Which fields of a counterexample matter: found out by varying them one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from aggverify.checks import Finding
from aggverify.errors import InputError
from aggverify.generation.catalogue import plain_losses
from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.run.outcome.verdict import Relevance
from aggverify.run.search.pipeline import JudgeCases
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout

LOSS_VALUES = "loss values"
_ROUNDINGS = 1e-3
_LONG = 10_000
"""Tokens, at most, of a step that is run a dozen times more."""


def relevance(finding: Finding, space: Space, judge: JudgeCases) -> Relevance:
    """Judge the case with each field varied in turn; ``judge`` runs them all in one go."""
    if finding.traits.costs_a_world or finding.case.step.num_response_tokens > _LONG:
        return Relevance()
    wide = replace(
        space, min_units=1, min_world=1, split_groups=False, blank_a_unit=False, needs_hole=False
    )
    tried = [(name, case) for name, case in variations(finding.case, space) if case in wide]
    if finding.traits.varies_losses:
        tried = [(name, case) for name, case in tried if name != LOSS_VALUES]
    found = judge([case for _, case in tried])
    same: dict[str, bool] = {}
    for (name, _), judged in zip(tried, found, strict=True):
        again = judged is not None and judged.code == finding.code and _same_signs(finding, judged)
        same[name] = same.get(name, True) and again
    return Relevance(
        tuple(name for name, again in same.items() if not again),
        tuple(name for name, again in same.items() if again),
    )


def _same_signs(finding: Finding, other: Finding) -> bool:
    """Whether the finding's token is off by the same factor, where there is one."""
    was, now = _factor(finding, finding.token), _factor(other, finding.token)
    if was is None or now is None:
        return was is now
    # A factor in another dtype differs by its roundings.
    return was == now or abs(was - now) <= _ROUNDINGS * abs(was)


def _factor(finding: Finding, token: int | None) -> float | None:
    observed = finding.observed
    if token is None or observed is None or finding.expected is None:
        return None
    if not math.isfinite(observed[token]) or not finding.expected[token]:
        return None
    return float(observed[token] / finding.expected[token])


def variations(case: Case, space: Space) -> Iterator[tuple[str, Case]]:
    """Yield the case with one field changed: its name, and the case."""
    for name, build in _builders(case, space):
        try:
            varied = build()
        except InputError:
            continue
        if varied != case:
            yield name, varied


def _builders(case: Case, space: Space) -> Iterator[tuple[str, Callable[[], Case]]]:
    step, layout = case.step, case.layout
    for dtype in ("float64", "float32"):
        yield "dtype", partial(replace, case, dtype=dtype)
    plain = plain_losses(step)
    for losses in (plain, tuple(-x for x in plain), (1.0,) * len(plain)):
        yield LOSS_VALUES, partial(case.with_losses, losses)
    for more in (1, 4):
        yield "prompt lengths", partial(_with_samples, case, _longer(step, more))
    yield "prompt groups", partial(_with_samples, case, [replace(s, group=0) for s in step.samples])
    alone = [replace(s, group=s.rollout) for s in step.samples]
    yield "prompt groups", partial(_with_samples, case, alone)
    yield "loss mask", partial(_with_samples, case, _unmasked(step))
    yield "micro-batches", partial(case.with_layout, _joined(layout))
    yield "dp_size", partial(case.with_layout, _one_rank(layout))
    for cp in (1, 2, 3):
        yield "cp_size", partial(_sliced, case, cp, layout.cp_kind)
    if layout.cp_size > 1:
        for kind in space.cp_kinds:
            yield "cp kind", partial(_sliced, case, layout.cp_size, kind)


def _sliced(case: Case, cp: int, kind: CpKind) -> Case:
    return case.with_layout(replace(case.layout, cp_size=cp, cp_kind=kind))


def _with_samples(case: Case, samples: Sequence[Sample]) -> Case:
    return replace(case, step=Step(tuple(samples)))


def _longer(step: Step, more: int) -> list[Sample]:
    return [replace(s, prompt_length=s.prompt_length + more) for s in step.samples]


def _unmasked(step: Step) -> list[Sample]:
    """Every response token is part of the objective; what was rejected stays."""
    return [
        s if s.original_mask else replace(s, loss_mask=b"\1" * s.response_length)
        for s in step.samples
    ]


def _joined(layout: Layout) -> Layout:
    """One micro-batch on every rank."""
    cells = tuple((tuple(sorted(chain.from_iterable(rank))),) for rank in layout.micro_batches)
    return replace(layout, micro_batches=cells)


def _one_rank(layout: Layout) -> Layout:
    """Micro-batch k of all data-parallel ranks as micro-batch k of one."""
    cells = (tuple(sorted(chain.from_iterable(k))) for k in zip(*layout.micro_batches, strict=True))
    return replace(layout, micro_batches=(tuple(cells),))
