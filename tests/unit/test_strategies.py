"""Generated cases reach what hides bugs, and tell modes apart where they promise to."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from aggverify.generation.space import Space, sizes
from aggverify.generation.strategies import cases, related, telling_apart
from aggverify.oracles import MODES, Step
from aggverify.oracles.coincidence import distinguishes
from aggverify.run.planning.identify import IDENTIFYING
from aggverify.steps.case import Case
from aggverify.steps.layouts import token_owner
from aggverify.steps.notation import parse_step

SPACE = Space(
    max_dp=4,
    max_cp=4,
    max_microbatches=3,
    cp_kinds=("zigzag", "contiguous", "gathered"),
    min_units=2,
    fan_out=True,
)
DRAWS = 1000


def traits(case: Case) -> set[str]:
    """Which of the hard things a case contains."""
    step, layout = case.step, case.layout
    counts = [s.num_unmasked for s in step.samples]
    owner = token_owner(step, layout)
    cell = {i: (d, k) for d, k, members in layout.cells() for i in members}
    ranks = {(d, c) for d, c, _ in owner}
    found = {
        "unequal lengths": len({s.response_length for s in step.samples}) > 1,
        "holes": any(0 < s.num_unmasked < s.response_length for s in step.samples),
        "fully masked sample": 0 in counts,
        "fully masked micro-batch": any(
            not any(counts[i] for i in members) for _, _, members in layout.cells()
        ),
        "rank with no token": len(ranks) < layout.world_size,
        "prompt longer than a chunk": layout.cp_size > 1
        and any(
            s.prompt_length > (s.prompt_length + s.response_length) / (2 * layout.cp_size)
            for s in step.samples
        ),
        "group straddles ranks": any(
            len({cell[i][0] for i in members}) > 1 for members in step.groups.values()
        ),
        "group straddles micro-batches": any(
            len({cell[i][1] for i in members}) > 1 for members in step.groups.values()
        ),
        "fan-out rollout": any(len(members) > 1 for members in step.rollouts.values()),
        "unequal groups": len({len(m) for m in step.groups.values()}) > 1,
        layout.cp_kind: layout.cp_size > 1,
    }
    return {name for name, present in found.items() if present}


@pytest.fixture(scope="module")
def seen() -> Counter[str]:
    counter: Counter[str] = Counter()

    @settings(
        max_examples=DRAWS,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(SPACE))
    def draw(case: Case) -> None:
        counter.update(traits(case))

    draw()
    return counter


@pytest.mark.parametrize(
    ("trait", "percent"),
    [
        ("unequal lengths", 50),
        ("holes", 40),
        ("fully masked sample", 10),
        ("fully masked micro-batch", 5),
        ("rank with no token", 15),
        ("prompt longer than a chunk", 30),
        ("group straddles ranks", 20),
        ("group straddles micro-batches", 15),
        ("fan-out rollout", 30),
        ("unequal groups", 20),
        ("zigzag", 10),
        ("contiguous", 10),
        ("gathered", 10),
    ],
)
def test_hard_things_are_drawn_often(seen: Counter[str], trait: str, percent: int) -> None:
    assert seen[trait] * 100 >= percent * DRAWS, f"{seen[trait]} of {DRAWS}"


@given(telling_apart(MODES))
def test_telling_steps_tell_every_mode_apart(step: Step) -> None:
    assert distinguishes(step, MODES)


@pytest.mark.parametrize("text", IDENTIFYING)
def test_stored_telling_steps_tell_every_mode_apart(text: str) -> None:
    assert distinguishes(parse_step(text), MODES)


def test_the_smallest_world_comes_first() -> None:
    assert sizes(SPACE)[0] == (1, 1, 2, "zigzag")
    assert (1, 1, 1, "zigzag") in sizes(Space(max_dp=2))
    assert all(d * c != 5 for d, c, *_ in sizes(Space(max_dp=8, max_cp=8)))


@given(cases(Space(max_dp=4, max_microbatches=3, uniform=True)))
def test_uniform_layouts_deal_rows_in_order(case: Case) -> None:
    cells = [members for _, _, members in case.layout.cells()]
    assert len({len(c) for c in cells}) == 1
    assert [i for c in cells for i in c] == list(range(len(case.step.samples)))


ROWS = Space(max_dp=2, max_microbatches=2, uniform=True, rows=3, shuffled=True)


@given(cases(ROWS), related(replace(ROWS, shuffled=False, min_units=2, split_groups=True), 3))
@settings(max_examples=20)
def test_micro_batches_of_a_size_are_all_of_it(case: Case, drawn: tuple[Case, ...]) -> None:
    assert case in ROWS
    assert all(c in replace(ROWS, split_groups=True) for c in drawn)


@given(cases(Space(max_dp=2, max_cp=2, blank_a_unit=True)))
def test_a_blanked_unit_is_there(case: Case) -> None:
    assert any(s.num_unmasked == 0 for s in case.step.samples)


@given(cases(Space(needs_hole=True)))
def test_a_hole_is_there(case: Case) -> None:
    assert case.masked_tokens()


@given(related(SPACE, 4))
def test_related_cases_are_one_step_under_several_layouts(drawn: tuple[Case, ...]) -> None:
    assert len({case.layout for case in drawn}) == len(drawn) <= 4
    assert {(case.step, case.losses, case.dtype) for case in drawn} == {
        (drawn[0].step, drawn[0].losses, drawn[0].dtype)
    }
    for case in drawn:
        layout = case.layout
        size = (layout.dp_size, layout.cp_size, layout.num_microbatches, layout.cp_kind)
        assert size in sizes(SPACE)
