"""The verifier verified: every historic bug is found by the check named for it, and no right
reducer is blamed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aggverify.conventions import convention
from aggverify.engines import engine
from aggverify.execution import Laboratory
from aggverify.mutants import CORRECT, MUTANTS, Correct, Mutant
from aggverify.run.request import Request
from aggverify.run.session import examine, opened
from aggverify.run.verdict import Verdict
from aggverify.subject import Subject
from aggverify.world import Pool


@pytest.fixture(scope="module")
def laboratory() -> Iterator[Laboratory]:
    """One pool for all mutants: they live in one module, imported once."""
    with Pool() as pool, opened(pool, {"module": "aggverify.mutants.everything"}) as template:
        yield Laboratory(template)


def verdict(laboratory: Laboratory, entry: Mutant | Correct) -> Verdict:
    subject = Subject(
        entry.function,
        entry.function,
        convention(entry.convention),
        engine(entry.engine),
        entry.mode,
        entry.divisor,
        max_world=4,
    )
    request = Request(target=entry.function, max_examples=20, max_time=2.0, max_world=4)
    return examine(request, subject, laboratory, lambda event: None)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.number}-{m.function}")
def test_a_historic_bug_is_found(laboratory: Laboratory, mutant: Mutant) -> None:
    found = {report.finding.code for report in verdict(laboratory, mutant).reports}
    assert found & set(mutant.codes), f"expected one of {mutant.codes}, found {found or 'nothing'}"


@pytest.mark.parametrize("reducer", CORRECT, ids=lambda c: c.function)
def test_a_right_reducer_is_never_blamed(laboratory: Laboratory, reducer: Correct) -> None:
    reports = verdict(laboratory, reducer).reports
    assert not reports, [(r.finding.code, r.finding.message) for r in reports]
