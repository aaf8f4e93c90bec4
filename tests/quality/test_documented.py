"""What ``aggverify explain`` calls the smallest example is what every search comes down to."""

from __future__ import annotations

import json

import pytest

from aggverify.checks import CHECKS, check, exhaustive
from aggverify.checks.counts import BEYOND_FLOAT32
from aggverify.codes import Example
from aggverify.execution.budget import PROFILES
from aggverify.execution.executor import Executor
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.planning.unsupported_probe import settled
from aggverify.run.search.runner import CheckRun
from aggverify.run.search.triage import confirm
from aggverify.steps.case import Case
from aggverify.steps.notation import format_step
from tests.choosing import thorough_but
from tests.conftest import SEEDS
from tests.explained import EXAMPLES, IDS, case_of, subject_of


def test_every_check_has_a_documented_smallest_case() -> None:
    """But for what is only run when asked for: a step of millions of tokens is no example."""
    found = {example.check for _, example in EXAMPLES}
    assert found == {c.name for c in CHECKS if not c.only_with}


DRAWN = [
    (name, *given)
    for given, name in zip(EXAMPLES, IDS, strict=True)
    if check(given[1].check).only is None
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "drawn", thorough_but(DRAWN, lambda d: d[1] == "AGV202", ids=lambda d: d[0], each=15)
)
def test_the_search_ends_there(
    executor: Executor, drawn: tuple[str, str, Example], seed: int
) -> None:
    _, code, example = drawn
    wanted = check(example.check)
    subject = settled(subject_of(example), executor).claiming(seed=seed)
    space = wanted.space(subject)
    assert space is not None
    check_run = CheckRun(wanted, subject, space, executor, RunStatistics(), lambda: None)
    # The default budget in examples; in seconds it would judge the machine.
    examples = min(PROFILES["ci"].examples, wanted.max_examples or 10**9)
    finding = check_run.run(examples=examples)
    assert finding is not None
    assert (finding.code, shape(finding.case)) == (code, shape(case_of(example)))
    assert confirm(check_run, finding)


@pytest.mark.thorough
def test_the_enumeration_meets_it_first(executor: Executor) -> None:
    [example] = (e for _, e in EXAMPLES if e.check == exhaustive.NAME)
    subject = subject_of(example)
    space = exhaustive.space(subject)
    check_run = CheckRun(exhaustive.CHECK, subject, space, executor, RunStatistics(), lambda: None)
    finding = check_run.run(examples=0)
    assert finding is not None
    assert shape(finding.case) == shape(case_of(example))


def test_beyond_float32_there_is_one_case() -> None:
    [example] = (e for _, e in EXAMPLES if e.check == BEYOND_FLOAT32.name)
    assert BEYOND_FLOAT32.only is not None
    [case] = BEYOND_FLOAT32.only(subject_of(example))
    assert case.step.num_response_tokens == case.step.num_unmasked == example.ones


def shape(case: Case) -> tuple[str, str, str]:
    """Everything but the losses."""
    return format_step(case.step), json.dumps(case.layout.to_json()), case.dtype
