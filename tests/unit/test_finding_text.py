"""What is said of a finding when nothing, one thing or several things explain it."""

from __future__ import annotations

from fractions import Fraction

from aggverify.checks import Finding
from aggverify.diagnosis import Diagnosis
from aggverify.diagnosis.bugs import BUGS
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.model import harmless
from aggverify.report import text
from aggverify.report.document import document
from aggverify.report.findings import judged
from aggverify.run.outcome.store import stored_case
from aggverify.run.outcome.verdict import Relevance, ReportedFinding, RunVerdict
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step

SUBJECT = Subject.of(Claim("r.py", "reduce", "native", "sum", "token_mean"))
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
    return text.render(document([RunVerdict(SUBJECT, (report,), (), 7, ((1, 7),), (), 0)]))


def test_what_nothing_explains_is_said_with_every_weight() -> None:
    told = block(None)
    cause = "unknown: no known factor, formula or historic bug gives these weights"
    assert f"  cause        {cause}\n" in told
    assert (
        "      sample  mask  weight  expected\n"
        "        0     ##       1/4       1/3  x 3/4\n"
        "        1     #        3/4       1/3  x 9/4  <-\n"
    ) in told


def test_a_formula_without_a_history_says_so() -> None:
    told = block(Diagnosis("sum of l / 7"))
    assert "  you compute  sum of l / 7 (no historic bug is known to be this)" in told
    assert "\n  cause " not in told


def test_a_bug_is_shown_with_its_fix() -> None:
    told = block(Diagnosis("in detail", None, BUGS[0])).replace("\n" + " " * 15, " ")
    assert f"  you compute  {BUGS[0].sentence}" in told
    assert "  in detail    in detail" in told
    assert f"  fix          {BUGS[0].fix}" in told
    assert f"  seen in      {BUGS[0].seen}" in told


def test_a_replay_says_what_is_left_of_the_finding() -> None:
    shown = harmless(judged(FINDING, SUBJECT))
    same, other, fixed = (
        list(text.replay_lines("abc123", f"{code} A title", found))
        for code, found in (("AGV101", shown), ("AGV201", shown), ("AGV101", None))
    )
    assert same[0] == "FAILED  case abc123: AGV101 Weights are not the mode's"
    assert other[0] == f"{same[0]} (was AGV201 A title)"
    assert same[1:4] == [
        "    sample 1's token weighs 3/4 instead of 1/3: 9/4 times too much",
        "        sample  mask  weight  expected",
        "          0     ##       1/4       1/3  x 3/4",
    ]
    assert fixed == ["FIXED   case abc123: AGV101 A title"]
