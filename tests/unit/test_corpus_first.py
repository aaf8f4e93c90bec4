"""Every check begins with the hard cases, before any is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aggverify.checks import CHECKS, Check
from aggverify.execution.claim import Claim
from aggverify.execution.kept import Submitted
from aggverify.execution.subject import Subject
from aggverify.generation.corpus import corpus
from aggverify.run.outcome.events import Phase
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.search.pipeline import Running
from aggverify.run.search.runner import CheckRun
from aggverify.steps.case import Case

ABOUT = Subject.of(Claim("r.py", "reduce", "native", "sum", "token_mean"))
BEGIN = [c for c in CHECKS if c.only is None and c.stored is None and c.space(ABOUT) is not None]


@dataclass(slots=True)
class Noted(CheckRun):
    """Every case passes; which they were is noted."""

    seen: list[Case] = field(default_factory=list)

    phases: list[Phase] = field(default_factory=list)

    def begin(self, cases: Sequence[Case]) -> None:
        """Start nothing: there are no ranks."""

    def submit(self, cases: Sequence[Case]) -> Running:
        self.seen += cases
        self.phases.append(self.phase)
        return Running(Submitted(list, lambda: False), lambda _: [None] * len(cases))


def noted(check: Check) -> Noted:
    space, ranks = check.space(ABOUT), cast("Any", SimpleNamespace(budget_clock=lambda: 0.0))
    assert space is not None
    return Noted(check, ABOUT, space, ranks, RunStatistics())


def _ranks(case: Case) -> int:
    return case.layout.world_size


@pytest.mark.parametrize("check", BEGIN, ids=lambda check: check.name)
def test_a_check_begins_with_the_corpus(check: Check) -> None:
    run = noted(check)
    assert run.run(examples=2) is None
    first = run.stored_cases()
    assert run.seen[: len(first)] == first and len(run.seen) > len(first)
    own = [hard.case for hard in corpus() if check.name in hard.checks]
    common = [check.project(hard.case) for hard in corpus() if not hard.checks]
    listed = [case for case in dict.fromkeys((*own, *common)) if case in run.space]
    begins = sorted(listed[: check.max_stored], key=_ranks)
    assert first[: len(listed)] == begins, "small worlds first, and the grid after it"
    grid = first[len(begins) :]
    assert grid == sorted(grid, key=_ranks)
    assert {*run.phases} == {Phase.STREAM}
