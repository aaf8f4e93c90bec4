"""Findings that are one mistake are told as one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aggverify.diagnosis import Diagnosis
from aggverify.diagnosis.bugs import BUGS
from aggverify.model import Waiver
from aggverify.report.findings import reported
from aggverify.run.outcome.verdict import Relevance
from aggverify.steps.layouts import Layout
from tests import verdicts


@pytest.mark.parametrize(
    ("matters", "irrelevant", "groups"),
    [
        (("micro-batches", "cp_size"), ("dtype", "prompt groups"), 1),
        (("micro-batches", "cp_size", "prompt groups"), ("dtype",), 2),
        (("micro-batches",), ("prompt groups",), 2),
    ],
    ids=["the slicing alone", "the groups too", "another dimension"],
)
def test_a_split_group_whose_groups_do_not_matter_follows_the_layout(
    matters: tuple[str, ...], irrelevant: tuple[str, ...], groups: int
) -> None:
    verdict = verdicts.verdict()
    split = verdicts.report(verdict.subject, code="AGV206", number=2)
    split = replace(split, diagnosis=None, relevance=Relevance(matters, irrelevant))
    assert len(replace(verdict, reports=(*verdict.reports, split)).causes) == groups


def test_a_split_group_is_never_told_that_prompt_groups_do_not_matter() -> None:
    verdict = verdicts.verdict()
    split = verdicts.report(verdict.subject, code="AGV206")
    split = replace(split, relevance=Relevance(("cp_size",), ("dtype", "prompt groups")))
    assert reported(split, split, verdict.subject).does_not_matter == ("dtype",)


STATE = Diagnosis(
    "something of an earlier step",
    bug=next(bug for bug in BUGS if bug.name == "state-between-steps"),
)


@pytest.mark.parametrize("accepted", [False, True], ids=["fails", "accepted"])
def test_unexplained_weights_follow_weights_that_are_not_steady(accepted: bool) -> None:
    """Found before or after; but one that is accepted hides none that fails."""
    verdict = verdicts.verdict(reports=0)
    state = replace(verdicts.report(verdict.subject, code="AGV131", number=1), diagnosis=STATE)
    if accepted:
        state = replace(state, waived=Waiver("AGV131", "known", 1, None, None, None, False, ()))
    other = replace(verdicts.report(verdict.subject, code="AGV202", number=2), diagnosis=None)
    apart = (Relevance(("cp_size",)), Relevance(("micro-batches",)))
    state, other = (replace(r, relevance=w) for r, w in zip((state, other), apart, strict=True))
    for reports in ((state, other), (other, state)):
        causes = replace(verdict, reports=reports).causes
        assert len(causes) == 1 + accepted
        assert causes[0][0].finding.code == "AGV131"


ZEROS = Diagnosis("some samples have weight 0 and are silently left out")


@pytest.mark.parametrize("last", [False, True], ids=["first", "found last"])
@pytest.mark.parametrize(
    ("reference", "why", "groups"),
    [
        ("the oracle", [None], 1),
        ("the oracle", [ZEROS], 1),
        ("the oracle", [], 2),
        ("one rank", [None], 2),
    ],
    ids=["a formula that is wrong on one rank", "that leaves out", "with a cause", "of a layout"],
)
def test_unexplained_weights_of_a_layout_are_those_of_a_formula_that_is_unexplained(
    reference: str, why: list[Diagnosis | None], groups: int, last: bool
) -> None:
    verdict = verdicts.verdict(reports=0)
    alone = verdicts.report(verdict.subject, code="AGV101", number=1)
    case = replace(alone.finding.case, layout=Layout.trivial(1))
    alone = replace(alone, finding=replace(alone.finding, case=case, reference=reference))
    first = replace(alone, diagnosis=why[0]) if why else alone
    other = replace(verdicts.report(verdict.subject, code="AGV202", number=2), diagnosis=None)
    relevances = (Relevance(("cp_size",)), Relevance(("micro-batches",)))
    reports = [
        replace(report, relevance=relevance)
        for report, relevance in zip((first, other), relevances, strict=True)
    ]
    causes = replace(verdict, reports=tuple(reports[::-1] if last else reports)).causes
    assert len(causes) == groups
    assert groups > 1 or causes[0][0].finding.code == "AGV101"
