"""One stream serves every space: cases are folded into it, or it has draws of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pytest

from aggverify.checks import CHECKS
from aggverify.checks.spaces import spread
from aggverify.execution.budget import MIN_EXAMPLES
from aggverify.generation.space import Space
from aggverify.generation.stream import CaseStream, bring
from aggverify.run.search.drawing import draws, stream_of
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from tests.unit.test_checks import PLAIN

STEP = parse_step("1/11; 2/101; 1/1; 3/11")
LAYOUT = Layout((((0,), (3,)), ((2,), (1,))), 2, "contiguous")
CASE = Case(STEP, LAYOUT, (1.0,) * STEP.num_response_tokens, "float32")


@pytest.mark.parametrize(
    ("space", "cells", "cp"),
    [
        (Space(max_dp=2, max_cp=2, max_microbatches=2), (((0,), (3,)), ((2,), (1,))), 2),
        (Space(max_dp=2), (((0, 3),), ((1, 2),)), 1),
        (Space(max_microbatches=2), (((0, 2), (1, 3)),), 1),
        (Space(max_cp=2), (((0, 1, 2, 3),),), 2),
        (Space(max_dp=2, max_cp=2, max_world=2), (((0, 3),), ((1, 2),)), 1),
        (Space(), (((0, 1, 2, 3),),), 1),
    ],
)
def test_a_layout_is_folded_into_the_sizes_of_a_space(
    space: Space, cells: tuple[tuple[tuple[int, ...], ...], ...], cp: int
) -> None:
    wide = replace(space, cp_kinds=("contiguous",), dtypes=("float32",))
    brought = bring(CASE, wide)
    assert brought is not None and brought in wide
    assert brought.layout.micro_batches == cells
    assert brought.layout.cp_size == cp
    assert (brought.step, brought.losses, brought.dtype) == (STEP, CASE.losses, "float32")


@pytest.mark.parametrize(
    "space", [Space(max_length=100), Space(max_microbatches=16), Space(max_extra_samples=30)]
)
def test_a_space_that_is_wider_than_the_stream_has_its_own_draws(space: Space) -> None:
    usual = CaseStream((Space(),), lambda space, layouts=1: draws(space, 0, layouts))
    assert [*islice(usual.cases(space, 20), 20)] == [*islice(draws(space, 0), 20)]


def test_a_stream_that_was_interrupted_begins_anew() -> None:
    stops = iter([5])

    def draw(space: Space, layouts: int = 1) -> Iterator[Case]:
        most = next(stops, None)
        yield from islice(draws(space, 0, layouts), most)
        if most is not None:
            raise KeyboardInterrupt

    broken = CaseStream((Space(),), draw)
    with pytest.raises(KeyboardInterrupt):
        list(islice(broken, 20))
    assert [*islice(broken, 20)] == [*islice(draws(Space(), 0, 1), 20)]


@pytest.mark.parametrize(
    "space",
    [
        Space(min_units=2),
        Space(max_cp=2),
        Space(empty_samples=False, blank_a_unit=True),
        Space(max_dp=2, group_size=2),
        Space(rows=1, uniform=True),
    ],
)
def test_what_cannot_be_brought_into_a_space_is_left_out(space: Space) -> None:
    assert bring(CASE, space) is None


def test_the_dtype_is_one_of_the_space() -> None:
    brought = bring(CASE, Space(dtypes=("float64",)))
    assert brought is not None and brought.dtype == "float64"


def drawing(space: Space) -> tuple[CaseStream, list[Space]]:
    asked: list[Space] = []

    def draw(space: Space, layouts: int = 4) -> object:
        asked.append(space)
        return draws(space, 0, layouts)

    return CaseStream((space,), draw), asked  # type: ignore[arg-type]


WIDE = Space(max_dp=4, max_cp=2, max_microbatches=3, fan_out=True, empty_samples=False)


def test_two_spaces_share_the_steps_of_the_stream() -> None:
    stream, asked = drawing(WIDE)
    one = list(islice(stream.cases(replace(WIDE, max_dp=1, max_cp=1, min_units=2), 30), 30))
    two = list(islice(stream.cases(Space(fan_out=True, empty_samples=False), 30), 30))
    assert asked == [WIDE]
    assert len(set(one)) == len(set(two)) == 30
    assert {case.step for case in one} & {case.step for case in two}


@pytest.mark.parametrize(
    "special", [Space(lengths=(5,)), Space(padded=True), Space(max_dp=2, split_groups=True)]
)
def test_a_space_that_asks_for_more_has_draws_of_its_own(special: Space) -> None:
    stream, asked = drawing(WIDE)
    found = list(islice(stream.cases(special, 10), 10))
    assert asked == [special] and all(case in special for case in found)


def test_a_space_that_the_stream_starves_has_draws_of_its_own_as_well() -> None:
    rows = Space(max_dp=2, max_microbatches=2, uniform=True, rows=3, min_units=2)
    stream, asked = drawing(WIDE)
    found = list(islice(stream.cases(rows, 40), 40))
    assert len(set(found)) == 40 and all(case in rows for case in found)
    assert rows in asked


def test_every_check_has_its_cases_whatever_the_stream_has() -> None:
    stream = stream_of(PLAIN)
    for check in CHECKS:
        space = check.space(PLAIN)
        if space is None or check.only is not None:
            continue
        wanted = min(check.max_examples or MIN_EXAMPLES, MIN_EXAMPLES)
        assert len(set(islice(stream.cases(check.draws(space), wanted), wanted))) == wanted


def test_half_of_the_stream_has_something_fully_masked() -> None:
    some = list(islice(stream_of(PLAIN), 100))
    blank = [any(not s.num_unmasked for s in case.step.samples) for case in some]
    assert blank == [False, True] * 50
    assert all(
        case in replace(spread(PLAIN, cp=8, micro_batches=4, min_units=1), empty_samples=True)
        for case in some
    )


def test_steps_are_drawn_once_for_all_who_ask() -> None:
    first, again = (next(draws(Space(max_dp=2), 12345)) for _ in range(2))
    assert first is again
