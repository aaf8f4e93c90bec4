"""Which cases are listed of each shape, and which numbers of a reducer's code they lie around."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aggverify.checks import virtual
from aggverify.checks.shapes import CHECK, space, stored
from aggverify.execution.budget import PROFILES
from aggverify.execution.subject import Subject
from aggverify.generation.constants import CONSTANTS, shaped
from aggverify.generation.shapes import FAMILIES, LONG, NAMINGS
from aggverify.generation.space import Space
from aggverify.generation.strategies import cases
from aggverify.steps.case import Case
from aggverify.trainer.constants import constants, dtypes
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


RING = [0] * 1024
SLOTS = np.zeros((4, 3072))
LAST: deque[float] = deque(maxlen=48)
WORDS = {"a few": 5, "words": 6}


def tables(losses: Any, batch: Any) -> Any:
    LAST.append(RING[len(losses) % len(RING)] + SLOTS[0, len(WORDS)])
    return losses


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (reduce, {512, 640, 96, 7, 0.95, 1 << 20, LIMIT}),
        (functools.partial(reduce, most=2000), {512, 640, 96, 7, 0.95, 1 << 20, LIMIT, 2000}),
        (Reducer(), {80, 12, 320, LIMIT}),
        (Reducer().__call__, {80, 12, 320, LIMIT}),
        (others, set()),
        (tables, {1024, 3072, 48, 5, 6}),
    ],
)
def test_the_numbers_of_the_code_and_of_what_it_calls_in_its_package(
    function: Callable[..., Any], told: set[float]
) -> None:
    assert set(constants(function)) == told


def in_half(losses: Any, batch: Any) -> Any:
    return losses.half().sum() if batch else losses.double()


def by_its_text(losses: Any, batch: Any) -> Any:
    return str(losses.dtype) == "torch.bfloat16"


@pytest.mark.parametrize(
    ("function", "told"),
    [(in_half, ["float16", "float64"]), (by_its_text, ["bfloat16"]), (reduce, [])],
)
def test_the_dtypes_of_the_code(function: Callable[..., Any], told: list[str]) -> None:
    assert dtypes(function) == told


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


def around(
    *numbers: float, within: Space | None = None, most: int = 5000, dtypes: Sequence[str] = ()
) -> list[Case]:
    shares = dict.fromkeys([CONSTANTS, *FAMILIES], 0) | {CONSTANTS: most}
    return list(shaped(within or space(PLAIN), numbers, shares, dtypes))


def lengths(dp: int, cp: int, k: int) -> Quantity:
    """Of responses with a hole on that layout."""

    def of(case: Case) -> Iterable[float]:
        layout = case.layout
        if (layout.dp_size, layout.cp_size, layout.num_microbatches) != (dp, cp, k):
            return []
        found = (s for s in case.step.samples if s.num_unmasked < s.response_length)
        return [s.response_length for s in found]

    return of


def tokens(case: Case) -> Iterable[float]:
    """Of a micro-batch, where no response is as long."""
    cells = [[case.step.samples[i] for i in cell] for _, _, cell in case.layout.cells()]
    return [sum(s.num_unmasked for s in some) for some in cells if len(some) > 1]


Quantity = Callable[[Case], Iterable[float]]
QUANTITIES: dict[str, Quantity] = {
    "length alone": lengths(1, 1, 1),
    "length on cp=2": lengths(1, 2, 1),
    "length on dp=2": lengths(2, 1, 1),
    "length in K=2": lengths(1, 1, 2),
    "tokens of a micro-batch": tokens,
    "samples of a micro-batch": lambda case: [len(cell) for _, _, cell in case.layout.cells()],
    "prompt": lambda case: [s.prompt_length for s in case.step.samples],
    "K": lambda case: [case.layout.num_microbatches],
    "groups": lambda case: [case.step.num_groups],
    "rollouts' ids": lambda case: case.step.rollouts,
    "groups' ids": lambda case: case.step.groups,
    "largest loss": lambda case: [max(map(abs, case.losses))],
}


@pytest.mark.parametrize("quantity", QUANTITIES.values(), ids=list(QUANTITIES))
def test_each_quantity_lies_on_all_sides_of_a_constant(quantity: Quantity) -> None:
    sizes = {size for case in around(40) for size in quantity(case)}
    assert sizes >= {39, 40, 41, 80}


@pytest.mark.parametrize("quantity", QUANTITIES.values(), ids=list(QUANTITIES))
def test_of_five_constants_each_meets_every_quantity_in_the_default_run(
    quantity: Quantity,
) -> None:
    """On all sides; and where the profile has fewer cases, first on one side of each."""
    numbers = (40, 12, 60, 17, 50)
    ci, quick = (PROFILES[name].shapes[CONSTANTS] for name in ("ci", "quick"))
    found = {size for case in around(*numbers, most=ci) for size in quantity(case)}
    assert found >= {side for c in numbers for side in (c - 1, c, c + 1, 2 * c)}
    found = {size for case in around(*numbers[:3], most=quick) for size in quantity(case)}
    assert found >= {41, 13, 61}


def test_densities_lie_on_both_sides_of_a_share() -> None:
    unmasked = {s.num_unmasked for case in around(0.25) for s in case.step.samples}
    assert unmasked >= {49, 50, 51, 100}


def test_losses_lie_on_both_sides_of_a_share() -> None:
    largest = {max(map(abs, case.losses)) for case in around(0.25)}
    assert largest >= {0.25 - 1 / 1024, 0.25, 0.25 + 1 / 1024, 0.5}


def test_a_dtype_that_the_code_names_is_met_on_every_layout_and_by_its_constants() -> None:
    assert {case.dtype for case in around(40)} == {"float64"}
    listed = [case for case in around(40, dtypes=("float16",)) if case.dtype == "float16"]
    spread = {(c.layout.dp_size, c.layout.cp_size, c.layout.num_microbatches) for c in listed}
    assert spread >= {(1, 1, 1), (1, 2, 1), (2, 1, 1), (1, 1, 2), (2, 2, 2)}
    for name in ("length alone", "length on cp=2", "tokens of a micro-batch", "K"):
        assert 41 in {size for case in listed for size in QUANTITIES[name](case)}, name
    assert not [case for case in around(dtypes=("float64",)) if case.dtype != "float64"]


def test_where_every_micro_batch_has_so_many_samples_there_are_cases_all_the_same() -> None:
    """Which Space.rows asks for, with losses of whole responses beside them."""
    wanted = replace(space(PLAIN), rows=5, uniform=True)
    found = around(40, within=wanted)
    assert {41} <= {size for case in found for size in QUANTITIES["length on cp=2"](case)}
    assert {len(cell) for case in found for _, _, cell in case.layout.cells()} == {5}


def test_long_ones_lie_on_both_sides_of_powers_of_two_and_of_their_multiples() -> None:
    for power in (64, 128):
        assert {power - 1, power, power + 1} <= set(LONG)
    assert {96, 97, 192, 193} <= set(LONG)
    assert min(LONG) >= 33 and max(LONG) <= 2048
    for profile, usual, fewest in (("quick", 5, 0), ("ci", 5, 1), ("thorough", 5, 5)):
        most = dict.fromkeys([CONSTANTS, *FAMILIES], 0) | {"long": PROFILES[profile].shapes["long"]}
        listed = shaped(space(PLAIN), (), most)
        spread = [
            len({c.layout for c in listed if c.step.samples[0].response_length == length})
            for length in LONG
        ]
        assert min(spread[:5]) >= usual
        assert min(spread[5:]) >= fewest
        assert len(dict.fromkeys(listed)) == len(listed), "none is listed twice"


def test_many_samples_are_met_in_each_number_before_any_is_on_another_layout() -> None:
    def counted(most: int) -> list[int]:
        found = shaped(space(PLAIN), (), dict.fromkeys([CONSTANTS, *FAMILIES], 0) | {"many": most})
        return [max(len(cell) for _, _, cell in case.layout.cells()) for case in found]

    assert [n for n in counted(PROFILES["ci"].shapes["many"]) if n > 8] == [9, 17, 64, 33, 16]
    every = counted(PROFILES["thorough"].shapes["many"])
    assert all(every.count(n) == 4 for n in (9, 17, 64, 33))


def test_every_constant_has_its_share() -> None:
    most = dict.fromkeys([CONSTANTS, *FAMILIES], 0) | {CONSTANTS: 40}
    met = {
        s.response_length
        for case in shaped(space(PLAIN), [float(60 + 10 * n) for n in range(12)], most)
        for s in case.step.samples
    }
    assert met >= {61 + 10 * n for n in range(12)}


def test_each_shape_is_there_at_its_size() -> None:
    listed = stored(PLAIN)
    shards = [c for c in listed if c.layout.cp_size > 1]
    assert max(s.response_length for c in shards for s in c.step.samples if s.num_unmasked) >= 2048
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


def test_prompts_whose_ids_share_low_bits_are_more_than_a_table_looks_for() -> None:
    ids = [sorted(case.step.groups) for case in stored(PLAIN) if case.step.num_groups == 10]
    assert [0, *range(1024, 10 * 1024, 1024)] in ids


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
    steps = [[s.response_length for s in c.step.samples] for c in shaped(space(PLAIN), (), most)]
    assert any(100 < min(some) < max(some) <= min(some) + 2 for some in steps)


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
