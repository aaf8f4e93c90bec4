"""Which lines ran is noted of a file's own functions, and told where no case took them."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from aggverify.execution.executed import Execution
from aggverify.execution.trace_sampling import FIRST, TraceSampling
from aggverify.model import Lines
from aggverify.run.outcome.branch_coverage import BranchCoverage
from aggverify.run.outcome.coverage_observer import CoverageObserver
from aggverify.steps import case_tags
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.trainer.conditions import Condition
from aggverify.trainer.line_coverage import LineCoverage
from aggverify.trainer.source import SourceFile, read
from tests import verdicts
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


def module(folder: Path, source: str = SOURCE) -> ModuleType:
    file = folder / "covered_one.py"
    file.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("covered_one", file)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(autouse=True)
def tools() -> Iterator[None]:
    """A process has few numbers for tools, and a rank needs one."""
    yield
    monitoring: Any = getattr(sys, "monitoring", None)
    for n in range(6 if monitoring else 0):
        if monitoring.get_tool(n) == "aggverify":
            monitoring.set_events(n, 0)
            monitoring.free_tool_id(n)


def covering(made: ModuleType) -> tuple[LineCoverage, SourceFile]:
    source = read(made)
    assert source is not None
    return LineCoverage(made.__file__, source.conditions), source


def test_the_lines_of_functions_and_methods_without_those_that_raise(tmp_path: Path) -> None:
    source = read(module(tmp_path))
    assert source is not None
    assert source.functions == [
        ("reduce", [6, 7, 8, 9, 10, 15, 16, 18]),
        ("Reducer.longest", [26]),
        ("unused", [30]),
    ]
    assert source.texts[2] == (29, ["def unused():", "    return 1"])


def test_a_module_without_source_has_none() -> None:
    assert read(sys) is None


def test_the_conditions_with_their_ways_without_those_that_raise(tmp_path: Path) -> None:
    source = read(module(tmp_path))
    assert source is not None
    assert list(source.conditions.all) == [Condition("reduce", 6, "size > 4", 7, 10)]


def test_what_runs_is_noted_and_nothing_else_is_traced(tmp_path: Path) -> None:
    made = module(tmp_path)
    noted, _ = covering(made)
    with noted.noting(ALONE):
        made.reduce([1])
        Path("somewhere").exists()
    assert noted.lines == (6, 10, 15, 16, 18)
    assert noted.outcomes == (0,)
    assert sys.gettrace() is None
    with noted.noting(SPREAD):
        made.reduce([], size=5)
    assert noted.lines == (6, 7, 8, 9)
    assert noted.outcomes == (1,)


WAYS = """
LIMIT = 512


def ways(x, y, z, values):
    if x is None or y is not None and not z:
        return 1
    a = x if x > LIMIT else y
    while x < 3 and z:
        x += 1
    b = [v for v in values if v > 1 if v is not None]
    {padding}
    return a, b, y or 1 < x < 3
"""
TEXTS = [
    "x is None",
    "y is not None",
    "z",
    "x > LIMIT",
    "x < 3",
    "z",
    "v > 1",
    "v is not None",
    "y",
]
CALLS: dict[tuple[object, ...], set[str]] = {
    (None, 1, 1, ()): {"x is None"},
    (600, None, 0, ()): {"-x is None", "-y is not None", "x > LIMIT", "-x < 3", "-y"},
    (2, None, 1, (1, 2)): {
        *("-x is None", "-y is not None", "-x > LIMIT", "x < 3", "z", "-x < 3"),
        *("-v > 1", "v > 1", "v is not None", "-y"),
    },
    (0, 4, 1, ()): {
        *("-x is None", "y is not None", "z", "-x > LIMIT", "x < 3", "-x < 3", "y"),
    },
}


@pytest.mark.parametrize("padding", ["", "b = [*b, " + "len(values), " * 200 + "]"])
def test_outcomes_of_all_forms_of_conditions(tmp_path: Path, padding: str) -> None:
    """The second with jumps so far that an instruction extends them."""
    made = module(tmp_path, WAYS.format(padding=f"if x == -1:\n        {padding}" * bool(padding)))
    noted, source = covering(made)
    conditions = [c for c in source.conditions.all if c.text != "x == -1"]
    assert sorted(c.text for c in conditions) == sorted(TEXTS)
    for n, (call, expected) in enumerate(CALLS.items()):
        with noted.noting(ALONE, (n,)):
            made.ways(*call)
        told = {("" if o % 2 else "-") + source.conditions.all[o // 2].text for o in noted.outcomes}
        assert told - {"-x == -1"} == expected


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="what is known costs nothing there")
def test_a_usual_case_is_not_looked_at(tmp_path: Path) -> None:
    made = module(tmp_path)
    noted, _ = covering(made)
    for usual in (False, True, False):
        with noted.noting(ALONE, usual=usual):
            made.reduce([])
        assert bool(noted.lines) != usual


def test_cases_are_usual_after_the_first_of_each_sort_and_large_ones_never() -> None:
    sorts = TraceSampling()
    others = [SPREAD, replace(ALONE, dtype="bfloat16"), ALONE.with_losses((math.nan, 0.0))]
    for case in (ALONE, *others):
        assert [sorts.usual(case, "reduce") for _ in range(FIRST + 1)] == [False] * FIRST + [True]
    assert not sorts.usual(ALONE, "another subject")
    large = Case(parse_step("1{257}"), Layout.trivial(1), (0.0,) * 257)
    assert not any(sorts.usual(large, "reduce") for _ in range(FIRST + 1))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is not there")
def test_what_is_known_is_switched_off_until_a_case_is_of_a_new_kind(tmp_path: Path) -> None:
    from aggverify.trainer.monitoring import Monitoring

    made = module(tmp_path)
    source = read(made)
    assert source is not None
    how = Monitoring(str(made.__file__), source.conditions)

    def ran(case: Case, size: int, subject: str = "") -> tuple[set[int], set[int]]:
        how.lines, how.outcomes = set(), set()
        assert how.begin(subject, case)
        made.reduce([], size=size)
        how.end()
        return how.lines, how.outcomes

    assert ran(ALONE, 1) == ({6, 10, 15, 18}, {0})
    assert ran(ALONE, 1) == (set(), {0})  # a branch stays on until both its outcomes were seen
    assert ran(ALONE, 5) == ({7, 8, 9}, {1})
    assert ran(ALONE, 5) == ran(ALONE, 1) == (set(), set())
    assert how.restarts == 1
    assert ran(SPREAD, 1) == ({6, 10, 15, 18}, {0})
    assert how.restarts == 2
    assert ran(ALONE, 5)[0] == {7, 8, 9}  # not on all kinds yet
    assert ran(SPREAD, 5)[0] == {7, 8, 9}
    assert how.restarts == 2
    assert ran(ALONE, 1, "another") == ({6, 10, 15, 18}, {0})


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="nothing is traced there")
def test_another_tools_tracing_is_left_alone(tmp_path: Path) -> None:
    made = module(tmp_path)

    def other(*_: object) -> None:
        return None

    noted, before = covering(made)[0], sys.gettrace()
    sys.settrace(other)
    try:
        with noted.noting(ALONE):
            made.reduce([1])
        assert sys.gettrace() is other
    finally:
        sys.settrace(before)
    assert noted.lines == ()


def test_kinds_are_those_of_step_layout_and_dtype() -> None:
    assert case_tags.decode(case_tags.tags(ALONE)) == ("one rank",)
    assert case_tags.decode(case_tags.tags(SPREAD)) == ("several ranks", "data parallel")
    step = parse_step("2/0101+1/00; 1/1")
    case = Case(step, Layout((((0, 1), (2,)),), 2), (0.0,) * 7, "bfloat16")
    every = (
        *("several ranks", "context parallel", "micro-batches"),
        *("hole", "fully masked", "fan-out", "bfloat16"),
    )
    assert case_tags.decode(case_tags.tags(case)) == every
    assert case_tags.encode(every) == case_tags.tags(case)


def ran(case: Case, lines: Sequence[int], outcomes: Sequence[int] = ()) -> Execution:
    return Execution(case, lines=frozenset(lines), outcomes=frozenset(outcomes))


LINES = (Lines("reduce", (6, 7, 8, 10, 15), 5, ()), Lines("unused", (30,), 29, ()))


def test_what_never_ran_is_told_of_functions_that_did() -> None:
    covered = BranchCoverage()
    covered.add([ran(ALONE, [6, 10]), ran(SPREAD, [6])])
    assert dict(covered.weaknesses(LINES)) == {
        "AGVW17": "lines 7-8, 15 of reduce",
        "AGVW18": "line 10 of reduce",
    }


def condition(text: str, then: int, otherwise: int) -> Condition:
    return Condition("reduce", 6, text, then, otherwise)


def test_a_condition_that_went_one_way_is_told_where_no_line_says_it() -> None:
    conditions = [condition("a", 7, 10), condition("b", 10, 8), condition("c", 15, 10)]
    covered = BranchCoverage()
    covered.add([ran(ALONE, [6, 8, 10, 15], [0, 3, 4, 5]), ran(SPREAD, [6, 8, 10, 15], [0, 3, 4])])
    told = dict(covered.weaknesses(LINES, conditions))
    # Of `a` line 7 says it.
    assert told["AGVW17"] == "line 7 of reduce; `b` never false in line 6 of reduce"
    assert told["AGVW18"] == "`c` never true in line 6 of reduce"


def test_a_parameter_with_one_value_in_training_is_expected_to_go_one_way() -> None:
    covered = BranchCoverage()
    covered.add([ran(ALONE, [6, 8, 10], [0]), ran(SPREAD, [6, 8, 10], [0])])
    lines = [Lines("reduce", (6, 7, 8, 10), 5, ())]
    conditions = [condition("return_outputs", 7, 8)]
    assert dict(covered.weaknesses(lines, conditions)) == {"AGVW17": "line 7 of reduce"}
    assert dict(covered.weaknesses(lines, conditions, ["return_outputs"])) == {}


def test_a_condition_that_asks_how_many_ranks_there_are_is_not_told() -> None:
    covered = BranchCoverage()
    covered.add([ran(ALONE, [6, 7, 10], [0]), ran(SPREAD, [6, 7, 10], [1])])
    lines = [Lines("reduce", (6, 7, 10), 5, ())]
    assert dict(covered.weaknesses(lines, [condition("world > 1", 7, 10)])) == {}


def test_nothing_is_said_of_sharded_lines_where_nothing_was_sharded() -> None:
    covered = BranchCoverage()
    covered.add([ran(ALONE, [6, 10])])
    assert "AGVW18" not in dict(covered.weaknesses(LINES))


def test_both_are_warnings_of_the_run() -> None:
    observer = CoverageObserver()
    observer.add(PLAIN, [ALONE, SPREAD])
    observer.covered.add([ran(ALONE, [6, 10], [0]), ran(SPREAD, [6], [0])])
    known = PLAIN.knowing(functions=LINES, conditions=(condition("a", 10, 6),))
    told = {w.code: w.detail for w in observer.weaknesses(known)}
    assert told["AGVW17"] == "lines 7-8, 15 of reduce; `a` never true in line 6 of reduce"
    assert told["AGVW18"] == "line 10 of reduce"


def test_nothing_is_warned_of_in_a_function_that_a_failing_case_was_in() -> None:
    """Of what a step ran before it raised nothing is known."""
    step = parse_step("1/1")
    case = Case(step, Layout.trivial(1), (1.0,))
    seen, lines = BranchCoverage(), [Lines("f", (4, 5), 3, ())]
    seen.add([Execution(case, lines=frozenset({4}))])
    assert list(seen.weaknesses(lines)) == [("AGVW17", "line 5 of f")]
    seen.add([Execution(case, failure=verdicts.fault(""))])
    assert list(seen.weaknesses(lines)) == []
