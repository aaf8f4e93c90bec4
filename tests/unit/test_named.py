"""Common mistakes that have a name, told from the weights they leave."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aggverify.diagnosis import WeightObservation
from aggverify.diagnosis.bugs import known_bug
from aggverify.diagnosis.clues import Clues
from aggverify.diagnosis.forms import closed_forms
from aggverify.diagnosis.partial import partial_form
from aggverify.diagnosis.shown import shown_by_weights
from aggverify.diagnosis.wording import needs_no_count, requirement
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches

Weight = Callable[[Case, int], float]
"""Of an unmasked token of sample i."""


def sample(mask: str, rollout: int, group: int = 0) -> Sample:
    return Sample(1, tuple(map(int, mask)), rollout, group)


STEPS = (
    (sample("1", 0),),
    (sample("11", 0), sample("1", 1), sample("11101", 0)),
    (sample("1111", 3), sample("1", 1), sample("110", 3), sample("111111", 2), sample("11", 1)),
    (sample("111", 0), sample("1", 0), sample("11111", 1), sample("1101", 2)),
    (sample("1" * 300, 0), sample("1", 1), sample("1" * 130, 2)),
)
LAYOUTS = ("", "0,1,2", "0,1 | 2,4,3", "0,3,1 | 2", "2,0,1")


def observations(mode: str, weight: Weight) -> list[WeightObservation]:
    subject = Subject.of(Claim("r.py", "reduce", "native", "sum", mode))
    found = []
    for samples, text in zip(STEPS, LAYOUTS, strict=True):
        step = Step(samples)
        cells = parse_micro_batches(text) if text else Layout.trivial(1).micro_batches
        for layout in (Layout.trivial(len(samples)), Layout(cells)):
            case = Case(step, layout, plain_losses(step))
            weights = [bit * weight(case, i) for i, s in enumerate(samples) for bit in s.loss_mask]
            found.append(
                WeightObservation(case, np.array(weights, dtype=float), subject.expected(step))
            )
    return found


def tokens(case: Case, i: int) -> int:
    return case.step.samples[i].num_unmasked


def cell(case: Case, i: int) -> tuple[int, ...]:
    return next(members for _, _, members in case.layout.cells() if i in members)


def rollout_tokens(case: Case, i: int, *, within: tuple[int, ...] | None = None) -> int:
    mine = case.step.samples[i].rollout
    every = range(len(case.step.samples)) if within is None else within
    return sum(tokens(case, j) for j in every if case.step.samples[j].rollout == mine)


def most_of_any_rank(case: Case, i: int) -> float:
    ranks = [[j for c in rank for j in c] for rank in case.layout.micro_batches]
    return 1 / max(sum(tokens(case, j) for j in rank) for rank in ranks)


def of_the_last(case: Case, i: int) -> float:
    mine = case.step.samples[i].rollout
    last = max(j for j, s in enumerate(case.step.samples) if s.rollout == mine)
    return 1 / (tokens(case, last) * case.step.num_rollouts)


def overwritten(case: Case, i: int) -> float:
    ids = [case.step.samples[j].rollout for j in cell(case, i)]
    n = cell(case, i).index(i)
    whole = rollout_tokens(case, i) * case.step.num_rollouts
    return 0.0 if ids[n] in ids[n + 1 :] else 1 / whole


def wrapped(case: Case, i: int) -> float:
    return 1 / max((tokens(case, i) + 128) % 256 - 128, 1) / case.step.num_rollouts


def stalled(case: Case, i: int) -> float:
    return 1 / (min(case.step.num_unmasked, 256))


def run_of(case: Case, i: int) -> float:
    members = cell(case, i)
    ids = [case.step.samples[j].rollout for j in members]
    first = last = members.index(i)
    while first and ids[first - 1] == ids[first]:
        first -= 1
    while last + 1 < len(ids) and ids[last + 1] == ids[last]:
        last += 1
    mine = members[first : last + 1]
    return 1 / (sum(tokens(case, j) for j in mine) * case.step.num_rollouts)


def sorted_again(case: Case, i: int) -> float:
    members = cell(case, i)
    order = sorted(range(len(members)), key=lambda n: case.step.samples[members[n]].response_length)
    other = members[order[order[members.index(i)]]]
    return 1 / (rollout_tokens(case, other) * case.step.num_rollouts)


@pytest.mark.parametrize(
    ("mode", "weight", "bug"),
    [
        ("token_mean", most_of_any_rank, "maximum-of-counts"),
        ("sample_mean", of_the_last, "overwritten-counts"),
        ("sample_mean", overwritten, "overwritten-sums"),
        ("token_mean", stalled, "counted-in-16-bits"),
        ("sample_mean", run_of, "runs-for-units"),
        ("sample_mean", sorted_again, "inverse-permutation"),
    ],
)
def test_it_is_named(mode: str, weight: Weight, bug: str) -> None:
    seen = observations(mode, weight)
    assert name_of(mode, seen) == bug


def test_a_count_that_wraps_is_named_by_its_type() -> None:
    alone = [o for o in observations("sample_mean", wrapped) if not fans_out(o.case)]
    assert name_of("sample_mean", alone) == "count-wraps"
    found = shown_by_weights(alone)
    assert found is not None and found.sentence == "the count of the sample wraps in int8"


def fans_out(case: Case) -> bool:
    return len(case.step.samples) > case.step.num_rollouts


@pytest.mark.parametrize("mode", ["token_mean", "sample_mean"])
def test_right_weights_are_none_of_these(mode: str) -> None:
    seen = observations(mode, lambda case, i: 0.0)
    right = [WeightObservation(o.case, o.exact, o.expected) for o in seen]
    assert shown_by_weights(right) is None and partial_form(right) is None


def name_of(mode: str, seen: list[WeightObservation]) -> str | None:
    """As a diagnosis does: samples left out, signs, then forms."""
    engine = Subject.of(Claim("r.py", "reduce", "native", "sum", mode)).engine
    partial = partial_form(seen)
    if partial is not None:
        signs = frozenset({partial.left_out.sign})
        bug = known_bug(Clues(mode, engine, signs, form=partial.form))
    elif (shown := shown_by_weights(seen)) is not None:
        bug = known_bug(Clues(mode, engine, frozenset({shown.sign})))
    else:
        forms = closed_forms(seen)
        bug = known_bug(Clues(mode, engine, form=forms[0])) if forms else None
    return None if bug is None else bug.name


def test_a_mode_that_counts_nothing_is_mended_without_a_count() -> None:
    """A Tinker loss knows no count of the step: what it returns is the sum."""
    subject = Subject.of(Claim("r.py", "loss_fn", "tinker", "sum", "token_sum"))
    assert requirement(subject) == "return sum(l) over its own tokens: no count divides it"
    counted = Subject.of(Claim("r.py", "reduce", "native", "sum", "token_mean"))
    assert needs_no_count(subject) and not needs_no_count(counted)
    assert "1 / (unmasked tokens of the step)" in str(requirement(counted))
