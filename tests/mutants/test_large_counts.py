"""A count that only goes wrong beyond 2^24 tokens, run at that size by real ranks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aggverify.checks.base import Check, Finding
from aggverify.checks.counts import BEYOND, BEYOND_FLOAT32
from aggverify.execution.claim import Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.report.findings import judged as shown
from aggverify.report.formatting import drawing
from aggverify.run.opening import opened
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.outcome.store import stored_case
from aggverify.run.search.runner import CheckRun
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.world import Pool
from tests.conftest import EXAMPLES

ONE_TOO_MANY = 257
"""The first count that bfloat16 does not hold."""


def judged(file: Path, check: Check = BEYOND_FLOAT32) -> tuple[Subject, Finding | None]:
    with Pool() as pool, opened(pool, {"path": str(file)}) as template:
        subject = Subject.of(Claim(str(file), "reduce", "native", "sum", "token_mean"))
        space = check.space(subject) or Space()
        executor = Executor(template)
        check_run = CheckRun(check, subject, space, executor, RunStatistics(), lambda: None)
        return subject, check_run.stored_failure()


@pytest.mark.covers(check=BEYOND_FLOAT32.name)
def test_a_count_in_fewer_bits_is_found_on_fewer_tokens() -> None:
    step = Step((Sample(1, b"\1" * ONE_TOO_MANY, 0, 0),))
    case = Case(step, Layout.trivial(1), (1.0,) * ONE_TOO_MANY)
    space = Space(lengths=(ONE_TOO_MANY,))
    small = replace(BEYOND_FLOAT32, only=lambda subject: (case,), space=lambda subject: space)
    finding = judged(EXAMPLES / "broken" / "bfloat16_count.py", small)[1]
    assert finding is not None
    assert (finding.code, finding.case) == ("AGV301", case)
    assert judged(EXAMPLES / "native" / "sum" / "token_mean.py", small)[1] is None


@pytest.mark.thorough
def test_a_float32_count_is_found_and_told_in_a_small_file() -> None:
    subject, finding = judged(EXAMPLES / "broken" / "float32_count.py")
    assert finding is not None
    assert finding.code == "AGV301"
    assert (
        f"the {BEYOND} tokens of the step were {BEYOND - 1}: the count is rounded to float32"
        in (finding.message)
    )
    stored = stored_case(subject, finding)
    assert len(json.dumps(stored.to_json())) < 1000
    step = shown(finding, subject).step
    text = "\n".join(drawing(step))
    assert f"({BEYOND} tokens)" in text
    assert len(text) < 2000
    assert [run.tokens for run in step.samples[0].runs] == [BEYOND]


@pytest.mark.exhaustive
def test_an_integer_count_passes() -> None:
    assert judged(EXAMPLES / "native" / "sum" / "token_mean.py")[1] is None
