"""A count that only goes wrong beyond 2^24 tokens, run at that size by real ranks."""

from __future__ import annotations

import json
from pathlib import Path

from aggverify.checks.base import Finding
from aggverify.checks.counts import BEYOND, BEYOND_FLOAT32
from aggverify.conventions import convention
from aggverify.engines import engine
from aggverify.execution.laboratory import Laboratory
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.report.text import finding_block
from aggverify.run.outcome.store import stored_case
from aggverify.run.outcome.tally import Tally
from aggverify.run.outcome.verdict import ReportedFinding
from aggverify.run.search.check_run import CheckRun
from aggverify.run.session import opened
from aggverify.world import Pool
from tests.conftest import EXAMPLES


def judged(file: Path) -> tuple[Subject, Finding | None]:
    with Pool() as pool, opened(pool, {"path": str(file)}) as template:
        subject = Subject(str(file), "reduce", convention("native"), engine("sum"), "token_mean")
        space = BEYOND_FLOAT32.space(subject) or Space()
        laboratory = Laboratory(template)
        check_run = CheckRun(BEYOND_FLOAT32, subject, space, laboratory, Tally(), lambda: None)
        return subject, check_run.stored_failure()


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
    text = "\n".join(finding_block([ReportedFinding(stored, finding, None, True)], subject, 1))
    assert f"({BEYOND} tokens)" in text
    assert len(text) < 2000


def test_an_integer_count_passes() -> None:
    assert judged(EXAMPLES / "native" / "sum" / "token_mean.py")[1] is None
