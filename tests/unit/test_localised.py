"""Ochiai's measure over what cases ran, on spectra made by hand."""

from __future__ import annotations

from aggverify.diagnosis.localised import Spectrum, suspects
from aggverify.model import Lines
from aggverify.trainer.conditions import Condition

CONDITIONS = (Condition("reduce", 3, "n > 64"), Condition("reduce", 5, "cp > 1"))
FUNCTIONS = (Lines("reduce", (2, 3, 4, 5), 1, ()),)


def ran(fails: bool, *lines: int, outcomes: tuple[int, ...] = ()) -> Spectrum:
    return Spectrum(fails, frozenset(lines), frozenset(outcomes))


def test_what_only_failing_cases_took_comes_first_once() -> None:
    found = suspects(
        [ran(True, 2, 3, 4, outcomes=(1, 2))] * 3 + [ran(False, 2, 3, outcomes=(0, 2))] * 5,
        FUNCTIONS,
        CONDITIONS,
    )
    (one,) = found  # line 4 has the cases of its condition, all others those of chance
    said = "line 3 of reduce, `n > 64` true: 3 of 3 failing cases, 0 of 5 passing ones"
    assert one.sentence == said


def test_what_all_failing_and_few_passing_ones_took_is_next() -> None:
    both, other = (1, 3), (1, 2)
    cases = [ran(True, 2, outcomes=both)] * 4 + [ran(False, 2, outcomes=both)]
    cases += [ran(False, 2, outcomes=other)] * 2 + [ran(False, 2, outcomes=(0, 2))] * 3
    found = suspects(cases, FUNCTIONS, CONDITIONS)
    assert [(s.line, s.truth, s.failing, s.passing) for s in found] == [
        (5, True, 4, 1),
        (3, True, 4, 3),
    ]


def test_nothing_is_said_where_nothing_tells_them_apart() -> None:
    same = [ran(True, 2, 3), ran(False, 2, 3)]
    assert suspects(same, FUNCTIONS, CONDITIONS) == ()
    assert suspects([ran(True, 2)], FUNCTIONS, CONDITIONS) == ()
    fewer = [ran(True, 2), ran(True, 2), ran(True, 2, 4), ran(False, 2, 4), ran(False, 2, 4)]
    assert suspects(fewer, FUNCTIONS, CONDITIONS) == ()
