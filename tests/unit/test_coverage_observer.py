"""Weak-test warnings follow from what was executed."""

from __future__ import annotations

import pytest

from aggverify.codes import CODES, Effect
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.model import Cut
from aggverify.run.outcome.coverage_observer import CoverageObserver
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

SUBJECT = Subject.of(Claim("r.py", "reduce", "native", "sum", "token_mean"))
HEALTHY = (("1/1 1/111; 1/11111", "0 | 1,2"), ("1/0; 1/1", "0,1"))


def told(*cases: tuple[str, str], subject: Subject = SUBJECT) -> set[str]:
    """The warnings of a run that executed these."""
    observer = CoverageObserver()
    for text, cells in cases:
        step = parse_step(text)
        layout = Layout(parse_micro_batches(cells))
        observer.add(subject, [Case(step, layout, plain_losses(step))])
    return {w.code for w in observer.weaknesses(subject)}


def test_nothing_run_says_nothing() -> None:
    assert told() == set()


def test_a_healthy_run_admits_only_what_it_lacks() -> None:
    claimed = SUBJECT.claiming(claimed=frozenset(SUBJECT.convention.not_claimed))
    assert told(*HEALTHY, subject=claimed) - {"AGVW05"} == {"AGVW04"}


@pytest.mark.parametrize(
    ("code", "cases"),
    [
        ("AGVW01", (("1/11 1/11; 1/11", "0,1,2"),)),
        ("AGVW02", (("1/1 1/111; 1/11111", "0,1 | 2"),)),
        ("AGVW03", HEALTHY[:1]),
        ("AGVW07", (("1/11; 1/11", "0,1"),)),
        ("AGVW09", HEALTHY[1:]),
    ],
)
def test_a_blind_run_is_told(code: str, cases: tuple[tuple[str, str], ...]) -> None:
    assert code not in told(*HEALTHY)
    assert code in told(*cases)


def test_more_ranks_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    assert "AGVW05" in told(*HEALTHY)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert "AGVW05" not in told(*HEALTHY)


def test_what_is_not_claimed_is_named() -> None:
    hook = SUBJECT.claiming(convention="slime")
    assert "AGVW06" in told(*HEALTHY, subject=hook)


def test_the_clock_and_the_missing_mode() -> None:
    observer = CoverageObserver()
    step = parse_step("1/1")
    unknown = SUBJECT.claiming(mode=None)
    observer.add(unknown, [Case(step, Layout.trivial(1), plain_losses(step))])
    observer.cut_short += [Cut("counts_are_exact", 21, 24), Cut("padding_changes_nothing", 20, 30)]
    found = {w.code: w.detail for w in observer.weaknesses(unknown)}
    told = "21 of 24 drawn in counts_are_exact, 20 of 30 drawn in padding_changes_nothing"
    assert found["AGVW08"] == told
    assert "AGVW10" in found
    assert "AGVW10" not in {w.code for w in observer.weaknesses(SUBJECT)}
    assert set(found) <= {name for name in CODES if CODES[name].effect is Effect.WARNING}
