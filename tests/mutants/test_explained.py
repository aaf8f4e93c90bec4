"""``aggverify explain``: complete, and every example is a step on which its mutant does fail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from aggverify.case import Case
from aggverify.checks import check
from aggverify.codes import CODES, WARNINGS
from aggverify.conventions import convention
from aggverify.engines import engine
from aggverify.execution import Laboratory
from aggverify.explain import Example, entries, entry, source
from aggverify.layouts import Layout
from aggverify.notation import parse_micro_batches, parse_step
from aggverify.run.catalogue import plain_losses
from aggverify.run.checking import Checking
from aggverify.run.session import opened
from aggverify.run.tally import Tally
from aggverify.space import Space
from aggverify.subject import NONLINEAR, Subject
from aggverify.world import Pool
from oracles import Step


@pytest.fixture(scope="module")
def laboratory() -> Iterator[Laboratory]:
    with Pool() as pool, opened(pool, {"module": "aggverify.mutants.all_shown"}) as template:
        yield Laboratory(template, Laboratory(template))


def case_of(example: Example) -> Case:
    """The example's step, layout and losses as a case."""
    step = parse_step(example.step or f"1/{'1' * example.ones}")
    samples = step.samples
    if example.groups:
        ids = zip(samples, example.groups, example.rollouts, strict=True)
        samples = tuple(replace(s, group=g, rollout=r) for s, g, r in ids)
    layout = Layout(parse_micro_batches(example.micro_batches), example.cp, example.cp_kind)  # type: ignore[arg-type]
    losses = example.losses or plain_losses(step)
    return Case(Step(samples), layout, losses, example.dtype)


def subject_of(example: Example) -> Subject:
    """The example's mutant under its convention, engine and mode."""
    function = example.mutant.partition(".")[2]
    how, nonlinear = convention(example.convention), example.mode == NONLINEAR
    subject = Subject(
        target=function,
        function=function,
        convention=how,
        engine=engine(example.engine),
        mode=None if nonlinear else example.mode,
        nonlinear=nonlinear,
        divisor=example.divisor,
        terms=example.terms,
        offered=("token_mean", "sample_mean") if how.mode_is_argument else (),
    )
    if example.against is None:
        return subject
    other = example.against.partition(".")[2]
    return replace(subject, against=replace(subject, target=other, function=other))


def test_every_code_is_explained_and_nothing_else() -> None:
    assert set(entries()) == {*CODES, *WARNINGS}


@pytest.mark.parametrize("code", [*CODES, *WARNINGS])
def test_an_entry_is_complete(code: str) -> None:
    found = entry(code.lower())
    assert found.code == code
    assert found.title and found.meaning and found.fix
    assert (found.example is not None) == (code in CODES)
    if found.example is not None:
        assert source(found.example.mutant).startswith("def ")
        assert found.example.says or (found.example.expected and found.example.actual)


@pytest.mark.parametrize("code", CODES)
def test_the_example_fails_with_this_code(code: str, laboratory: Laboratory) -> None:
    example = entry(code).example
    assert example is not None
    subject = subject_of(example)
    judged = check(example.check)
    found = Checking(judged, subject, Space(), laboratory, Tally(), lambda: None).judge(
        case_of(example)
    )
    assert found is not None, "nothing found"
    assert found.code == code, found
    if example.says is not None:
        assert re.search(example.says, found.message), found.message
    if example.expected is not None:
        assert found.expected is not None and found.observed is not None
        told = found.expected[example.token].limit_denominator(10**6)
        assert told == Fraction(example.expected)
        assert _written(found.observed[example.token]) == example.actual


def _written(weight: float) -> str:
    return "nan" if weight != weight else str(Fraction(weight).limit_denominator(10**6))
