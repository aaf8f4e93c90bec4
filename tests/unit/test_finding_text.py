"""What is said of a finding when nothing, one thing or several things explain it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from aggverify.checks import Finding
from aggverify.conventions import convention
from aggverify.diagnosis import Diagnosis
from aggverify.diagnosis.bugs import BUGS
from aggverify.engines import engine
from aggverify.execution.subject import Subject
from aggverify.report.text import finding_block
from aggverify.run.outcome.store import stored_case
from aggverify.run.outcome.verdict import Relevance, ReportedFinding
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step

SUBJECT = Subject("r.py", "reduce", convention("native"), engine("sum"), "token_mean")
CASE = Case(parse_step("1/11; 1/1"), Layout.trivial(2), (1.0, 2.0, 3.0))
FINDING = Finding(
    "AGV101",
    "weights_are_the_modes",
    "",
    CASE,
    "token_mean",
    (Fraction(1, 3),) * 3,
    (0.25, 0.25, 0.75),
    "the oracle",
    2,
)


def block(diagnosis: Diagnosis | None) -> str:
    report = ReportedFinding(stored_case(SUBJECT, FINDING), FINDING, diagnosis, True, Relevance())
    return "\n".join(finding_block([report], SUBJECT, 1))


def test_what_nothing_explains_is_said_with_every_weight() -> None:
    text = block(None)
    assert "not recognised: no known factor, formula or historic bug gives these weights" in text
    assert "sample 0, response token 0 and 1 more: expected 1/3, actual 1/4" in text
    assert "sample 1, response token 0: expected 1/3, actual 3/4" in text


def test_a_formula_without_a_history_says_so() -> None:
    text = block(Diagnosis("sum of l / 7"))
    assert "you compute: sum of l / 7   (no historic bug is known to be this)" in text
    assert "not recognised" not in text


@pytest.mark.parametrize("others", [0, 1, 2])
def test_every_bug_is_told_with_its_fix(others: int) -> None:
    first, *rest = BUGS[: others + 1]
    text = block(Diagnosis("in detail", None, first, None, tuple(rest)))
    assert text.count("        and: ") == others
    assert all(
        bug.sentence in text and f"usual fix: {bug.fix}" in text for bug in BUGS[: others + 1]
    )
