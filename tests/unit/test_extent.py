"""How far a run went is noted of every executed case, and told in the verdict."""

from __future__ import annotations

from dataclasses import replace

from aggverify.execution.subject import Subject
from aggverify.report.document import written
from aggverify.report.view_model import inventory
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.outcome.verdict import RunVerdict
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from aggverify.steps.reordering import renamed
from tests.unit.test_checks import PLAIN


def case(text: str, cells: str, cp: int = 1, dtype: str = "float64") -> Case:
    step = parse_step(text)
    layout = Layout(parse_micro_batches(cells), cp)
    return Case(step, layout, (0.0,) * step.num_response_tokens, dtype)


CASES = (
    case("1/1 5/11111", "0 1"),
    case("9/101; 1/1; 1/1", "0,1,2", cp=3, dtype="bfloat16"),
    case("1/1 2/1 3/1 4/1", "0 | 1 | 2 | 3", dtype="float32"),
    case("1/1", "0", dtype="float32"),
)


def verdict_of(subject: Subject, *cases: Case) -> RunVerdict:
    statistics = RunStatistics()
    statistics.observer.add(subject, cases)
    tried = statistics.observer.extent.tried
    return RunVerdict(subject, (), (), len(cases), ((1, len(cases)),), (), 0, tried=tried)


def test_the_largest_of_everything_is_told() -> None:
    tried = written(verdict_of(PLAIN, *CASES)).tried
    assert (tried.response, tried.sharded_response, tried.prompt) == (5, 3, 9)
    assert (tried.step_tokens, tried.step_samples, tried.micro_batch_samples) == (6, 4, 3)
    assert (tried.micro_batches, tried.dp_size, tried.cp_size, tried.identifier) == (2, 4, 3, 3)
    assert tried.dtypes == {
        "bfloat16": ("cp",),
        "float32": ("dp", "one rank"),
        "float64": ("micro-batches",),
    }


def test_a_reader_sees_it_where_nothing_was_found() -> None:
    lines = dict(inventory(written(verdict_of(PLAIN, *CASES))))
    assert "up to 5 tokens a response (3 sharded), 9 a prompt" in lines["tried"]
    assert "bfloat16 on cp; float32 on dp, one rank" in lines["tried"]


def test_nothing_is_told_of_a_run_without_a_step() -> None:
    nothing = replace(verdict_of(PLAIN), worlds=())
    assert "tried" not in dict(inventory(written(nothing)))


def test_a_large_id_is_told_as_the_integer_it_is() -> None:
    large = replace(CASES[0], step=renamed(CASES[0].step, [2**24 + 1], [2**24, 2**24 + 1]))
    lines = dict(inventory(written(verdict_of(PLAIN, large))))
    assert "ids up to 16,777,217;" in lines["tried"]
