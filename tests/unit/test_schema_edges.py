"""The schemas that are written by hand, and the readers of the same: alike at every edge."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aggverify.run.outcome.store import StoredCase
from aggverify.world import Fault, answers
from aggverify.world.wire import WireError
from tests import hostile, schemas
from tests.hostile import ERROR

GONE = object()
_NUMBERS = (-(2**63) - 1, -(2**63), -(2**63) + 1, -1, 0, 1, 8, 9, 64, 65, 10**9, 10**9 + 1)
EDGES: tuple[Any, ...] = (
    *_NUMBERS, 2**63 - 1, 2**63, 10**30, 0.5, -0.5, True, None, "x", [], {}, GONE
)  # fmt: skip
NUMERIC = (("seed",), ("group_size",), ("max_world",), ("budget", "max_examples"))
NUMERIC += (("budget", "max_time"), ("policy", "group_size"), ("divisor",), ("against", "seed"))
RAISED: Any = {**ERROR, "before": ERROR}


def spoiled(whole: Any) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Every place inside with each edge, and the whole with that edge there."""
    for place in filter(None, hostile.places(whole)):
        for edge in EDGES:
            yield place, edge, changed(whole, place, edge)


def changed(whole: Any, place: tuple[Any, ...], edge: Any) -> Any:
    """A copy with something else in a place, or nothing."""
    data = copy.deepcopy(whole)
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    if edge is GONE:
        del inner[place[-1]]
    else:
        inner[place[-1]] = copy.deepcopy(edge)
    return data


def takes_case(data: Any) -> bool:
    """Whether it is read as a stored case."""
    return not hostile.refused(lambda: StoredCase.from_json(data))


def takes_error(data: Any) -> bool:
    """Whether it is taken from a rank as an exception."""
    try:
        answers.rank({"error": data}, started=False)
    except WireError:
        return False
    return True


def raised_fits(data: Any) -> bool:
    """Whether a fault with it fits the schema."""
    fault = Fault("exception", 0, "").to_json() | {"errors": [[0, data]]}
    return schemas.validator(schemas.FAULT).is_valid(fault)


def case_fits(data: Any) -> bool:
    """Whether it fits the schema of stored cases."""
    return schemas.validator(schemas.CASE).is_valid(data)


@pytest.mark.parametrize(
    ("whole", "takes", "fits"),
    [(hostile.document(), takes_case, case_fits), (RAISED, takes_error, raised_fits)],
    ids=["case", "fault"],
)
def test_what_is_read_fits_the_schema(
    whole: Any, takes: Callable[[Any], bool], fits: Callable[[Any], bool]
) -> None:
    assert takes(whole)
    assert fits(whole)
    for place, edge, data in spoiled(whole):
        if takes(data):
            assert fits(data), (place, edge)


@pytest.mark.parametrize("place", NUMERIC, ids=".".join)
def test_a_number_that_fits_the_schema_is_read(place: tuple[str, ...]) -> None:
    for edge in (*_NUMBERS, 2**63 - 1, 2**63, 10**30):
        data = changed(hostile.document(), ("claim", *place), edge)
        assert takes_case(data) == case_fits(data), edge


def test_an_exception_that_fits_the_schema_is_taken() -> None:
    line, marked = 4, 5
    for place, edge, data in spoiled(RAISED):
        if not {line, marked} & {*place}:  # no schema knows that one is a part of the other
            assert takes_error(data) == raised_fits(data), (place, edge)
