"""Which cases are listed of each shape, and which numbers of a reducer's code they lie around."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from aggverify.checks import virtual
from aggverify.checks.shapes import CHECK, space, stored
from aggverify.execution.budget import PROFILES
from aggverify.execution.subject import Subject
from aggverify.generation.constants import CONSTANTS, shaped
from aggverify.generation.shapes import FAMILIES, NAMINGS
from aggverify.generation.space import Space
from aggverify.generation.strategies import cases
from aggverify.steps.case import Case
from aggverify.trainer.constants import constants
from tests.unit.test_checks import PLAIN, SUBJECTS

LIMIT = 48
TABLE = {"rows": 96, 7: "seven"}


def helper(tokens: int) -> bool:
    return tokens > LIMIT


class Reducer:
    window = 320

    def __init__(self) -> None:
        self.block = 80

    def __call__(self, losses: Any, batch: Any) -> Any:
        return helper(len(losses)) and len(losses) < self.block * 12


def reduce(losses: Any, batch: Any, most: int = 640) -> Any:
    if len(losses) > 512 or TABLE["rows"] > most:
        return (lambda x: x * 0.95)(losses)
    return helper(1 << 20)


def others(losses: Any, batch: Any) -> Any:
    return pytest.approx(losses)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (reduce, {512, 640, 96, 7, 0.95, 1 << 20, LIMIT}),
        (functools.partial(reduce, most=2000), {512, 640, 96, 7, 0.95, 1 << 20, LIMIT, 2000}),
        (Reducer(), {80, 12, 320, LIMIT}),
        (Reducer().__call__, {80, 12, 320, LIMIT}),
        (others, set()),
    ],
)
def test_the_numbers_of_the_code_and_of_what_it_calls_in_its_package(
    function: Callable[..., Any], told: set[float]
) -> None:
    assert set(constants(function)) == told


def test_an_object_that_raises_has_no_numbers() -> None:
    class Raises:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    assert constants(Raises()) == []


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.mode)
def test_every_listed_case_can_be_given(subject: Subject) -> None:
    listed = stored(subject.knowing(constants=(512.0, 8.0, 0.95)))
    wanted = space(subject)
    assert listed
    assert all(case in wanted for case in listed)


def around(*numbers: float, within: Space | None = None) -> list[Case]:
    most = dict.fromkeys([CONSTANTS, *FAMILIES], 0) | {CONSTANTS: 1000}
    return list(shaped(within or space(PLAIN), numbers, most))


@pytest.mark.parametrize(
    "quantity",
    [
        lambda case: [s.response_length for s in case.step.samples],
        lambda case: [s.prompt_length for s in case.step.samples],
        lambda case: [len(cell) for _, _, cell in case.layout.cells()],
        lambda case: [case.layout.num_microbatches],
        lambda case: case.step.rollouts,
        lambda case: map(abs, case.losses),
    ],
)
def test_each_quantity_lies_on_both_sides_of_a_constant(
    quantity: Callable[[Case], Iterable[float]],
) -> None:
    sizes = {size for case in around(40) for size in quantity(case)}
    assert 41 in sizes
    assert any(size <= 40 for size in sizes)


def test_lengths_around_a_constant_are_spread_and_have_holes() -> None:
    spread = {
        (case.layout.dp_size, case.layout.cp_size, case.layout.num_microbatches)
        for case in around(512)
        for s in case.step.samples
        if s.response_length == 513 and s.num_unmasked < 513
    }
    assert spread == {(1, 1, 1), (1, 2, 1), (2, 1, 1), (1, 1, 2)}
    shares = {s.num_unmasked for case in around(0.95) for s in case.step.samples}
    assert {189, 190, 191} <= shares


def test_every_constant_has_its_share() -> None:
    most = dict.fromkeys([CONSTANTS, *FAMILIES], 0) | {CONSTANTS: 40}
    lengths = {
        s.response_length
        for case in shaped(space(PLAIN), [float(60 + 10 * n) for n in range(12)], most)
        for s in case.step.samples
    }
    assert lengths >= {61 + 10 * n for n in range(12)}


def test_each_shape_is_there_at_its_size() -> None:
    listed = stored(PLAIN)
    shards = [c for c in listed if c.layout.cp_size > 1]
    assert max(s.response_length for c in shards for s in c.step.samples if s.num_unmasked) >= 2049
    for dtype in ("bfloat16", "float16", "float32"):
        kinds = {(c.layout.cp_size > 1, c.layout.cp_kind) for c in listed if c.dtype == dtype}
        assert {(True, "zigzag"), (True, "contiguous"), (True, "gathered")} <= kinds
    assert max(c.layout.num_microbatches for c in listed) == 32
    assert max(len(cell) for c in listed for _, _, cell in c.layout.cells()) >= 64
    assert max(len(c.step.samples) for c in listed) >= 200
    ids = {max(c.step.rollouts) for c in listed}
    assert max(ids) >= 2**62
    assert len(NAMINGS) == 8
    few = (s for c in listed for s in c.step.samples if 0 < s.num_unmasked <= 3)
    assert any(s.response_length >= 30 for s in few)


def test_every_profile_has_a_share_of_every_shape() -> None:
    for profile in PROFILES.values():
        assert profile.shapes.keys() == {CONSTANTS, *FAMILIES, virtual.SHAPE}


def test_a_profile_takes_its_share_of_every_shape() -> None:
    quick, ci = (
        len(stored(PLAIN.claiming(budget=SimpleNamespace(shapes=PROFILES[name].shapes))))
        for name in ("quick", "ci")
    )
    assert 0 < quick <= ci / 2


@pytest.mark.parametrize("subject", [PLAIN, *SUBJECTS[7:11]], ids=lambda s: s.mode)
def test_drawn_cases_are_of_the_space(subject: Subject) -> None:
    from hypothesis import HealthCheck, given, settings

    drawn = CHECK.draws(space(subject))
    seen: list[Case] = []

    @settings(max_examples=30, suppress_health_check=list(HealthCheck), database=None)
    @given(cases(drawn))
    def check(case: Case) -> None:
        assert case in drawn
        seen.append(case)

    check()
    assert max(s.response_length for case in seen for s in case.step.samples) > 12


def runs(mask: bytes) -> int:
    return sum(now > before for before, now in zip(b"\0" + mask, mask, strict=False))


def test_an_agents_turns_are_many_and_more_than_the_code_names() -> None:
    most = dict.fromkeys([CONSTANTS, *FAMILIES], 0) | {"degenerate": 100}
    sharded = [case for case in shaped(space(PLAIN), (), most) if case.layout.cp_size > 1]
    assert max(runs(s.loss_mask) for case in sharded for s in case.step.samples) == 40
    assert 71 in {runs(s.loss_mask) for case in around(70) for s in case.step.samples}


def test_long_responses_are_nearly_equal() -> None:
    most = dict.fromkeys([CONSTANTS, *FAMILIES], 0) | {"degenerate": 100}
    lengths = [[s.response_length for s in c.step.samples] for c in shaped(space(PLAIN), (), most)]
    assert any(100 < min(some) < max(some) <= min(some) + 2 for some in lengths)


def test_a_count_beyond_float16_whose_weight_is_not() -> None:
    most = dict.fromkeys([CONSTANTS, *FAMILIES], 0) | {"low-precision": 100}
    steps = [c.step for c in shaped(space(PLAIN), (), most) if c.dtype == "float16"]
    assert any(
        65_504 < step.num_rollouts * max(s.num_unmasked for s in step.samples) < 2**24
        for step in steps
    )


def test_pairs_of_ids_are_one_number_where_there_is_room_for_so_many() -> None:
    packed = [{(s.group * 1000 + s.rollout, s.group) for s in c.step.samples} for c in around(1000)]
    assert any(len({key for key, _ in pairs}) < len(pairs) for pairs in packed)
