"""Equal or loud: which exceptions refuse a split prompt group, and which are accidents."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
from msgspec.structs import replace

from aggverify.checks.refusal import refusal
from aggverify.execution.executed import Execution
from aggverify.run.planning import unsupported_probe
from aggverify.run.planning.unsupported_probe import asked_first
from aggverify.steps.case import Case, ranks_with_parts
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from aggverify.world import Fault, Frame, Raised
from aggverify.world.candidate_errors import raised
from aggverify.world.faults import FaultKind
from aggverify.world.frames import owner

torch_spec = find_spec("torch")
assert torch_spec is not None
OVER_MICRO_BATCHES, OVER_RANKS = asked_first()[:2]


def words(error: BaseException | Raised, *on: int, kind: FaultKind = "exception") -> str | None:
    """What passes for a refusal, of an exception on some ranks of a world of three."""
    value = error if isinstance(error, Raised) else seen(error)
    fault = Fault(kind, min(on, default=0), "", 3, dict.fromkeys(on or range(3), value))
    return refusal(Execution(OVER_RANKS, failure=fault), {0, 1})


def seen(error: BaseException) -> Raised:
    """As a rank sees it, its JSON included."""
    return Raised.from_json(json.loads(json.dumps(raised(error).to_json())))


def caught(source: str, file: str = "/home/me/reducer.py") -> Raised:
    """What running the source raises, as if it stood in that file."""
    try:
        exec(compile(source, file, "exec"), {})
    except Exception as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        return seen(error)
    raise AssertionError("nothing is raised")


@pytest.mark.parametrize("kind", ["ValueError", "AssertionError", "NotImplementedError"])
def test_a_worded_exception_is_a_refusal(kind: str) -> None:
    assert words(caught(f"raise {kind}('group 0 is split')")) == "group 0 is split"
    assert words(caught(f"if 1: raise {kind}('split')")) == "split"
    assert words(caught(f"raise {kind}(\n    'split',\n)")) == "split"


def test_an_assertion_with_a_message_is_a_refusal() -> None:
    source = "whole = False\nassert whole, (\n    'group 0 is split'\n)"
    assert words(caught(source)) == "group 0 is split"
    assert words(caught("def f():\n    assert 0, 'split'\nf()")) == "split"


def test_an_accident_is_not() -> None:
    assert words(caught("raise IndexError('index 3 is out of range')")) is None
    assert words(caught("for a, b in zip([1], [], strict=True): pass")) is None
    assert words(caught("int('never raise this')")) is None
    assert words(caught("assert 0")) is None
    assert words(caught("raise ValueError('split')"), kind="blocked") is None


@pytest.mark.parametrize(
    "file", [torch_spec.origin, json.__file__, "<string>", unsupported_probe.__file__]
)
def test_exceptions_of_others_are_not(file: str) -> None:
    assert words(caught("raise ValueError('split')", file)) is None
    inside = caught("raise ValueError('split')")
    assert words(replace(inside, frames=(*inside.frames, Frame(file, 1, "f", owner(file))))) is None


def test_every_rank_with_a_part_must_refuse() -> None:
    assert ranks_with_parts(OVER_MICRO_BATCHES) == {0}
    assert ranks_with_parts(OVER_RANKS) == {0, 1}
    split = caught("raise ValueError('split')")
    assert words(split, 0) is None
    assert words(split, 0, 1)


def test_a_step_that_was_done_is_no_refusal() -> None:
    assert refusal(Execution(OVER_RANKS)) is None


def test_ranks_are_counted_with_those_of_context_parallelism() -> None:
    step = parse_step("1/11 2/1; 3/1 1/1; 1/1")
    layout = Layout(parse_micro_batches("0,1 4 | 2 3"), cp_size=2)
    case = Case(step, layout, (1.0,) * step.num_response_tokens)
    assert ranks_with_parts(case) == {2, 3}


def test_an_exception_without_frames_is_no_refusal() -> None:
    assert words(Raised("ValueError", "split", stated=True)) is None
