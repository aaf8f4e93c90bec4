"""From what ranks issued to what one of them left out."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from msgspec import structs

from aggverify.diagnosis import Diagnosis
from aggverify.diagnosis.bugs import BUGS
from aggverify.diagnosis.forms import SIZES, ClosedForm
from aggverify.generation.catalogue import hard_cases
from aggverify.run.search import explaining
from aggverify.run.search.explaining import _in_words
from aggverify.run.search.failing import skipped
from aggverify.world import Collective, Fault, Stack

THEIRS = Collective("all_reduce", "0", (0, 1), "float64", 1, "SUM", "r.py:8")
OURS = structs.replace(THEIRS, place="")
WAITS = {0: (Stack("0x1", ()),)}


@pytest.mark.parametrize(
    "engine", [OURS, structs.replace(OURS, dtype="int32"), structs.replace(OURS, elements=7)]
)
@pytest.mark.parametrize("answered", [True, False])
def test_a_collective_that_one_rank_skips(engine: Collective, answered: bool) -> None:
    """The engine's own may look like the candidate's: ranks then part one later, or not at all."""
    traces = {0: (THEIRS, engine), 1: (engine,)}
    fault = Fault("diverged", 0, "", 2, traces=traces, inside={0: engine}, stacks=WAITS)
    if not answered:
        stacks = {**WAITS, 1: WAITS[0]}
        fault = replace(fault, inside={0: THEIRS, 1: engine}, stacks=stacks)
        fault = replace(fault, traces={0: (THEIRS,), 1: (engine,)})
    assert skipped(fault)


def test_what_is_still_to_come_is_not_left_out() -> None:
    traces = {0: (THEIRS, THEIRS), 1: (THEIRS,)}
    stacks = {0: WAITS[0], 1: WAITS[0]}
    fault = Fault("blocked", 1, "", 2, traces=traces, inside={0: THEIRS}, stacks=stacks)
    assert not skipped(fault)  # rank 1 sleeps somewhere in the candidate
    assert not skipped(replace(fault, inside={0: THEIRS, 1: THEIRS}))
    assert not skipped(replace(fault, traces={0: (THEIRS, OURS), 1: (THEIRS, OURS)}, stacks={}))
    assert not skipped(replace(fault, kind="exception"))


def test_a_formula_of_other_numbers_is_put_in_words_together_with_its_bug() -> None:
    bug = BUGS[0]
    found = Diagnosis(bug.sentence, bug=bug, form=ClosedForm(None, (), (0,) * len(SIZES)))
    words = _in_words(found, "apart from the sign: ")
    assert words.form is None and words.bug is not None
    assert words.sentence == words.bug.sentence == f"apart from the sign: {bug.sentence}"
    assert (words.bug.name, bug.sentence) == (bug.name, found.sentence)


@pytest.mark.parametrize("objective", [None, SimpleNamespace(slope=lambda *_: 1)])
def test_a_reducer_is_right_under_the_usual_engine_with_an_objective_too(
    objective: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose cases are observed at rest: some become one case."""
    monkeypatch.setattr(explaining, "_observed", lambda subject, case, control: case)
    monkeypatch.setattr(explaining, "is_right", lambda case: True)
    engine = SimpleNamespace(deviates=SimpleNamespace(usual=["usual"]))
    subject = SimpleNamespace(objective=objective, engine=engine)
    subject.under = lambda name: subject
    executor = SimpleNamespace(diagnosed=lambda subject, cases: list(cases))
    cases = list(hard_cases()[:4])
    found = explaining._right_usually(subject, executor, [*map(explaining.at_rest, cases), *cases])  # type: ignore[arg-type]
    assert found == "usual"
