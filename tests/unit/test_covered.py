"""Which lines ran is noted of a file's own functions, and told where no case took them."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from aggverify.execution.laboratory import Execution
from aggverify.run.outcome.covered import Covered
from aggverify.run.outcome.weakness import Sights
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.trainer.covering import FIRST, Covering, functions
from tests.unit.test_checks import PLAIN

SOURCE = '''import functools


def reduce(values, size=1):
    """Two branches."""
    if size > 4:
        total = 0
        total += 1
        return total
    if size < 0:
        raise ValueError(
            "negative"
        )

    def inner(x):
        return x + 1

    return [inner(v) for v in values]


class Reducer:
    block = 8

    @functools.cache
    def longest(self):
        return self.block


def unused():
    return 1
'''
STEP = parse_step("1/1; 1/1")
ALONE = Case(STEP, Layout.trivial(2), (0.0, 0.0))
SPREAD = ALONE.with_layout(Layout((((0,),), ((1,),))))


def module(folder: Path) -> ModuleType:
    file = folder / "covered_one.py"
    file.write_text(SOURCE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("covered_one", file)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_lines_of_functions_and_methods_without_those_that_raise(tmp_path: Path) -> None:
    assert functions(module(tmp_path)) == [
        ("reduce", [6, 7, 8, 9, 10, 15, 16, 18]),
        ("Reducer.longest", [26]),
        ("unused", [30]),
    ]


def test_a_module_without_source_has_none() -> None:
    assert functions(sys) == []


def test_what_runs_is_noted_and_nothing_else_is_traced(tmp_path: Path) -> None:
    made = module(tmp_path)
    covering = Covering(made.__file__)
    with covering.noting(ALONE):
        made.reduce([1])
        Path("somewhere").exists()
    assert covering.lines == (6, 10, 15, 16, 18)
    assert sys.gettrace() is None
    with covering.noting(ALONE):
        made.reduce([], size=5)
    assert covering.lines == (6, 7, 8, 9)


def test_of_ordinary_cases_the_first_and_of_others_all(tmp_path: Path) -> None:
    made = module(tmp_path)
    covering = Covering(made.__file__)
    for _ in range(FIRST):
        with covering.noting(ALONE):
            made.reduce([])
        assert covering.lines
    odd = [replace(ALONE, dtype="bfloat16"), ALONE.with_losses((math.nan, 0.0))]
    for case, noted in zip([ALONE, *odd], (False, True, True), strict=True):
        with covering.noting(case):
            made.reduce([])
        assert bool(covering.lines) is noted
    with covering.noting(ALONE, ("reduce", "token_mean")):  # another subject in the same rank
        made.reduce([])
    assert covering.lines


def test_another_tools_tracing_is_left_alone(tmp_path: Path) -> None:
    made = module(tmp_path)

    def other(*_: object) -> None:
        return None

    covering, before = Covering(made.__file__), sys.gettrace()
    sys.settrace(other)
    try:
        with covering.noting(ALONE):
            made.reduce([1])
        assert sys.gettrace() is other
    finally:
        sys.settrace(before)
    assert covering.lines == ()


def ran(case: Case, lines: Sequence[int]) -> Execution:
    return Execution(case, lines=frozenset(lines))


LINES = (("reduce", (6, 7, 8, 10, 15)), ("unused", (30,)))


def test_what_never_ran_is_told_of_functions_that_did() -> None:
    covered = Covered()
    covered.add([ran(ALONE, [6, 10]), ran(SPREAD, [6])])
    assert dict(covered.weaknesses(LINES)) == {
        "AGVW17": "lines 7-8, 15 of reduce",
        "AGVW18": "line 10 of reduce",
    }


def test_nothing_is_said_of_sharded_lines_where_nothing_was_sharded() -> None:
    covered = Covered()
    covered.add([ran(ALONE, [6, 10])])
    assert "AGVW18" not in dict(covered.weaknesses(LINES))


def test_both_are_warnings_of_the_run() -> None:
    sights = Sights()
    sights.add(PLAIN, [ALONE, SPREAD])
    sights.covered.add([ran(ALONE, [6, 10]), ran(SPREAD, [6])])
    told = {w.code: w.detail for w in sights.weaknesses(PLAIN.knowing(functions=LINES))}
    assert told["AGVW17"] == "lines 7-8, 15 of reduce"
    assert told["AGVW18"] == "line 10 of reduce"
