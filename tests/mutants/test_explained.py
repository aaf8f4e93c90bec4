"""``aggverify explain``: complete, and every example is a step on which its mutant does fail."""

from __future__ import annotations

import inspect
import re
from fractions import Fraction
from importlib import import_module

import pytest

from aggverify.checks import check, real_engine
from aggverify.checks.counts import BEYOND
from aggverify.codes import CODES, Effect, Example
from aggverify.codes.explanations import explanations
from aggverify.engines import engine
from aggverify.execution.executor import Executor
from aggverify.generation.space import Space
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.search.runner import CheckRun
from tests.explained import EXAMPLES, case_of, subject_of

# Those of 2^24 tokens take seconds: test_large_counts runs one.
SLOW, LATER = ("AGV406",), pytest.mark.exhaustive
"""What takes many seconds: a rank that never comes back is waited for."""
OF_RUNS = "AGV6"
"""Only the records of a real run show these: no reducer is an example."""
QUICK = [(code, example) for code, example in EXAMPLES if example.ones < BEYOND]


def test_every_code_is_explained_and_nothing_else() -> None:
    assert list(explanations()) == list(CODES)


@pytest.mark.parametrize("code", CODES)
def test_an_explanation_is_complete(code: str) -> None:
    found = explanations()[code]
    assert found.meaning and found.fix
    shown = CODES[code].effect is not Effect.WARNING and not code.startswith(OF_RUNS)
    assert (found.example is not None) == shown
    if found.example is not None:
        assert found.example.reducer == _source(found.example.mutant)
        assert found.example.says or (found.example.expected and found.example.actual)


def covering(example: Example) -> pytest.MarkDecorator:
    return pytest.mark.covers(
        check=example.check, convention=example.convention, engine=example.engine
    )


@pytest.mark.parametrize(
    ("code", "example"),
    [
        pytest.param(c, e, id=f"{c}-{e.check}", marks=[covering(e), *[LATER] * (c in SLOW)])
        for c, e in QUICK
    ],
)
def test_the_example_fails_with_this_code(code: str, example: Example, executor: Executor) -> None:
    subject = subject_of(example)
    judged = check(example.check)
    if judged is real_engine.CHECK and (why := engine("fsdp2").available()) is not None:
        pytest.skip(f"what is printed was found under FSDP2, and {why}")
    found = CheckRun(judged, subject, Space(), executor, RunStatistics(), lambda: None).judge(
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


def _source(mutant: str) -> str:
    module, _, name = mutant.partition(".")
    text = inspect.getsource(getattr(import_module(f"tests.corpus.{module}"), name))
    return text.replace("  # type: ignore[return-value]", "")


def _written(weight: float) -> str:
    return "nan" if weight != weight else str(Fraction(weight).limit_denominator(10**6))
