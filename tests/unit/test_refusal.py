"""Equal or loud: which exceptions refuse a split prompt group, and which are accidents."""

from __future__ import annotations

import pytest

from aggverify.checks.refusal import refusal
from aggverify.execution.laboratory import Execution, Failure
from aggverify.run.planning.refusing import split_groups
from aggverify.steps.case import Case, ranks_with_parts
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

OVER_MICRO_BATCHES, OVER_RANKS = split_groups()
THEIRS = """Traceback (most recent call last):
  File "/home/me/reducer.py", line 9, in reduce
    {line}
{kind}: {text}
"""


def raised(
    kind: str, text: str, line: str, *, ranks: str = "", name: str = "exception"
) -> str | None:
    detail = THEIRS.format(kind=kind, text=text, line=line)
    failure = Failure(name, 0, f"{kind}: {text}".removesuffix(": ") + ranks, detail)
    return refusal(Execution(OVER_RANKS, failure=failure))


@pytest.mark.parametrize("kind", ["ValueError", "AssertionError", "NotImplementedError"])
def test_a_worded_exception_is_a_refusal(kind: str) -> None:
    assert raised(kind, "group 0 is split", "raise X(...)") == f"{kind}: group 0 is split"
    assert raised(kind, "group 0 is split", "assert whole, (") == f"{kind}: group 0 is split"
    assert raised(kind, "group 0 is split", "if odd: raise X(...)") == f"{kind}: group 0 is split"


def test_an_accident_is_not() -> None:
    assert raised("IndexError", "index 3 is out of range", "raise IndexError(...)") is None
    assert raised("ValueError", "zip() argument 2 is shorter", "for a, b in zip(x, y):") is None
    assert raised("ValueError", "bad", "check('never raise this')") is None
    assert raised("RuntimeError", "sizes of tensors must match", "return a + b") is None
    assert raised("AssertionError", "", "assert whole") is None
    assert raised("ValueError", "split", "raise X", name="blocked") is None


def test_torchs_own_exceptions_are_not() -> None:
    inside = """Traceback (most recent call last):
  File "/home/me/reducer.py", line 9, in reduce
    torch.split(x, sizes)
  File "/venv/lib/python3.11/site-packages/torch/functional.py", line 207, in split
    raise ValueError("sizes do not fit")
ValueError: sizes do not fit
"""
    failure = Failure("exception", 0, "ValueError: sizes do not fit", inside)
    assert refusal(Execution(OVER_RANKS, failure=failure)) is None


def test_every_rank_with_a_part_must_refuse() -> None:
    assert ranks_with_parts(OVER_MICRO_BATCHES) == {0}
    assert ranks_with_parts(OVER_RANKS) == {0, 1}
    assert raised("ValueError", "split", "raise X", ranks=" (on rank 0, not on 1)") is None
    assert raised("ValueError", "split", "raise X", ranks=" (on rank 0, 1, not on 2)")


def test_a_step_that_was_done_is_no_refusal() -> None:
    assert refusal(Execution(OVER_RANKS)) is None


def test_ranks_are_counted_with_those_of_context_parallelism() -> None:
    step = parse_step("1/11 2/1; 3/1 1/1; 1/1")
    layout = Layout(parse_micro_batches("0,1 4 | 2 3"), cp_size=2)
    case = Case(step, layout, (1.0,) * step.num_response_tokens)
    assert ranks_with_parts(case) == {2, 3}


def test_a_stack_without_a_line_of_theirs_is_no_refusal() -> None:
    for detail in ("", "ValueError: split", '  File "/home/me/reducer.py", line 9, in reduce'):
        failure = Failure("exception", 0, "ValueError: split", detail)
        assert refusal(Execution(OVER_RANKS, failure=failure)) is None
