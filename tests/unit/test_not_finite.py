"""What is not finite has causes of its own, told by where it is so; never by weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from aggverify.checks import Finding
from aggverify.diagnosis import (
    Poison,
    WeightObservation,
    diagnose_behind,
    diagnose_mask,
    diagnose_not_finite,
    mask_leak,
)
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from tests import verdicts

SUBJECT = Subject.of(
    Claim(target="t.py", function="f", convention="native", engine="sum", mode="token_mean")
)
Cells = Callable[[Case, int, int, int], bool]


def case(step: str, cells: str = "0", cp: int = 1) -> Case:
    parsed = parse_step(step)
    return Case(parsed, Layout(parse_micro_batches(cells), cp), plain_losses(parsed))


STEPS = (
    case("1/11 1/1", "0,1"),
    case("1/10 1/00", "0,1"),
    case("1/10 1/00", "0 1"),
    case("1/11 1/00", "0 | 1"),
    case("1/0", "0"),
    case("1/1", "0", cp=2),
)


def seen(of: Case, bad: Cells | None = None, weights: str = "") -> WeightObservation:
    """An observation with NaN in the losses of these cells, or in gradients of these tokens."""
    exact = SUBJECT.expected(of.step)
    observed = np.array([float(w) for w in exact or ()])
    mask = np.frombuffer(b"".join(s.loss_mask for s in of.step.samples), dtype=np.uint8)
    if weights == "masked":
        observed[mask == 0] = math.nan
    if weights == "empty step" and not mask.any():
        observed[:] = math.nan
    layout = of.layout
    losses = tuple(
        tuple(math.nan if bad and bad(of, d, c, k) else 1.0 for k in range(layout.num_microbatches))
        for d in range(layout.dp_size)
        for c in range(layout.cp_size)
    )
    finite = np.isfinite(losses).all()
    return WeightObservation(of, observed, exact, Fraction(1) if finite else None, losses)


def of_the_step(of: Case, d: int, c: int, k: int) -> bool:
    return not of.step.num_unmasked


def of_the_micro_batch(of: Case, d: int, c: int, k: int) -> bool:
    members = of.layout.micro_batches[d][k]
    return not any(any(of.step.samples[i].loss_mask) for i in members)


def of_the_rank(of: Case, d: int, c: int, k: int) -> bool:
    return of_the_micro_batch(of, d, c, k) or (of.layout.cp_size == 2 and c == 1)


def of_a_sample(of: Case, d: int, c: int, k: int) -> bool:
    members = of.layout.micro_batches[d][k]
    return not all(any(of.step.samples[i].loss_mask) for i in members)


FINDING = Finding("AGV111", "a check", "", STEPS[4], "token_mean")


@pytest.mark.parametrize(
    ("bad", "unit"),
    [
        (of_the_step, "step"),
        (of_the_micro_batch, "micro-batch"),
        (of_the_rank, "rank's part of a micro-batch"),
        (of_a_sample, "sample"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_empty_count_is_told_by_the_losses_that_are_not_finite(bad: Cells, unit: str) -> None:
    found = diagnose_not_finite(SUBJECT, FINDING, [seen(of, bad) for of in STEPS])
    assert found is not None and found.bug is not None
    assert found.bug.name == "no-floor"
    assert f"count of a {unit} without" in found.sentence


@pytest.mark.parametrize(
    ("weights", "bug"),
    [("masked", "mask-on-the-result"), ("empty step", "guard-on-the-result")],
)
def test_a_gradient_alone_is_told_from_a_division(weights: str, bug: str) -> None:
    found = diagnose_not_finite(SUBJECT, FINDING, [seen(of, weights=weights) for of in STEPS])
    assert found is not None and found.bug is not None
    assert found.bug.name == bug


def test_on_a_fully_masked_step_alone_the_mask_is_not_to_blame() -> None:
    """``(l*m).sum() / m.sum()``: every masked token is NaN there, and so is the loss."""
    alone = replace(seen(STEPS[4], of_the_step), observed=np.array([math.nan]))
    found = diagnose_not_finite(SUBJECT, FINDING, [alone])
    assert found is not None and found.bug is not None and found.bug.name == "no-floor"


def test_where_nothing_fits_nothing_is_said() -> None:
    other = [seen(of, lambda of, d, c, k: len(of.step.samples) == 2) for of in STEPS]
    assert diagnose_not_finite(SUBJECT, FINDING, other) is None


POISONED = Finding("AGV121", "a check", "", STEPS[4], "token_mean")
STEP = case("1/100")


def effects(
    what: dict[Poison, float], gradient: tuple[Poison, ...] = (), weight: float = 0.0
) -> str | None:
    """The bug told of losses that these poisons give, of gradients they spoil, and of the weight
    that masked tokens have."""
    clean = replace(seen(STEP), value=Fraction(1), local_losses=((1.0,),))
    clean = replace(clean, observed=np.where(clean.mask, clean.observed, weight))

    def dirty(poison: Poison) -> WeightObservation:
        loss = what.get(poison, 1.0)
        value = Fraction(loss) if math.isfinite(loss) else None
        weights = clean.observed * (math.nan if poison in gradient else 1)
        return replace(clean, value=value, local_losses=((loss,),), observed=weights)

    found = diagnose_behind(SUBJECT, POISONED, mask_leak([(clean, {p: dirty(p) for p in Poison})]))
    return found.bug.name if found is not None and found.bug is not None else None


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("what", "gradient", "bug"),
    [
        ({Poison.NAN: NAN, Poison.INFINITY: NAN}, (), "multiply-by-mask"),
        ({Poison.NAN: NAN, Poison.INFINITY: NAN, Poison.OVERFLOW: NAN}, (), "keep-alive"),
        (dict.fromkeys((Poison.NAN, Poison.OVERFLOW, Poison.LARGEST), NAN), (), "multiply-by-mask"),
        (
            {Poison.NAN: NAN, Poison.INFINITY: NAN, Poison.FINITE: 0.0, Poison.OVERFLOW: NAN},
            (),
            "added-and-subtracted",
        ),
        (
            {Poison.NAN: NAN, Poison.INFINITY: INF, Poison.FINITE: 9.0, Poison.OVERFLOW: INF},
            (),
            "masked-values-reported",
        ),
        ({}, (Poison.NAN, Poison.INFINITY), "mask-on-the-result"),
        ({}, (), None),
    ],
    ids=[
        "0 * NaN",
        "0 * sum",
        "0 * exp",
        "inf - inf",
        "reported alone",
        "where in backward",
        "nothing",
    ],
)
def test_what_is_behind_the_mask_is_told_by_what_each_kind_does(
    what: dict[Poison, float], gradient: tuple[Poison, ...], bug: str | None
) -> None:
    assert effects(what, gradient) == bug


def test_a_leak_is_never_told_to_divide_by_another_count() -> None:
    """Weights off by a factor say nothing of what is behind the mask."""
    doubled = replace(seen(STEP), observed=2 * seen(STEP).observed)
    assert diagnose_mask(SUBJECT, POISONED, [doubled]) is None


def test_what_is_not_finite_is_no_consequence_of_another_finding() -> None:
    verdict = verdicts.verdict()
    found = verdicts.report(verdict.subject, code="AGV111", number=2)
    told = diagnose_not_finite(SUBJECT, FINDING, [seen(of, of_the_step) for of in STEPS])
    same = replace(verdict.reports[0].relevance, irrelevant=("",))
    apart = replace(found, diagnosis=told, relevance=same)
    assert len(replace(verdict, reports=(*verdict.reports, apart)).causes) == 2


def test_masked_tokens_that_have_weights_are_not_only_reported() -> None:
    """``losses.mean()``: the mask was forgotten, in value and gradient."""
    huge = {Poison.NAN: NAN, Poison.INFINITY: INF, Poison.FINITE: 2.0**100, Poison.OVERFLOW: INF}
    assert effects(huge) == "masked-values-reported"
    assert effects(huge, weight=1.0) == "masked-tokens-weighed"
