"""What people import draws and shrinks by itself: the obvious smallest example, in few calls."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from aggverify.errors import InputError
from aggverify.generation.space import Space
from aggverify.generation.strategies import SEVERAL, cases, layouts, steps
from aggverify.oracles import Step
from aggverify.steps.case import Case, ranks_with_parts
from aggverify.steps.layouts import Layout, token_owner
from aggverify.steps.notation import format_step, parse_step
from tests.conftest import SEEDS

CALLS = 1200
"""Of the condition, from the first draw to the smallest example; usual are 30 to 300. A sample is
five draws; as one byte string (before) it took half of the calls, and was a language of its own."""
SHUFFLED = Space(max_dp=2, max_cp=2, max_microbatches=2, shuffled=True)
PADDED = Space(max_dp=2, padded=True, dummies=True)

T = TypeVar("T")


def smallest(strategy: st.SearchStrategy[T], wanted: Callable[[T], bool], seed: int) -> T:
    """What Hypothesis ends on; fails when it takes more than CALLS."""
    calls = 0

    def condition(drawn: T) -> bool:
        nonlocal calls
        calls += 1
        return wanted(drawn)

    configured = settings(
        max_examples=1000,
        phases=(Phase.generate, Phase.shrink),
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    found = find(strategy, condition, settings=configured, random=Random(seed))
    assert calls <= CALLS
    return found


def tokens(case: Case) -> set[int]:
    """Response tokens of each micro-batch."""
    lengths = [s.response_length for s in case.step.samples]
    return {sum(lengths[i] for i in cell) for _, _, cell in case.layout.cells()}


def sizes(layout: Layout) -> tuple[int, int, int]:
    return layout.dp_size, layout.cp_size, layout.num_microbatches


def empty_shard(case: Case) -> bool:
    ranks = {(d, c) for d, c, _ in token_owner(case.step, case.layout)}
    return len(ranks) < case.layout.world_size


def text(case: Case) -> str:
    layout = case.layout
    sliced = f" cp {layout.cp_size} {layout.cp_kind}" if layout.cp_size > 1 else ""
    ranks = (" ".join(",".join(map(str, cell)) for cell in rank) for rank in layout.micro_batches)
    return f"{format_step(case.step)} @ {' | '.join(ranks)}{sliced}"


SMALLEST: list[tuple[str, Space, Callable[[Case], bool], str]] = [
    ("anything", SEVERAL, lambda case: True, "1/1 @ 0"),
    (
        "two micro-batches of one sample each, of different token counts",
        SEVERAL,
        lambda case: (
            {case.layout.num_microbatches, len(case.step.samples), len(tokens(case))} == {2}
        ),
        "1/1; 1/11 @ 0 1",
    ),
    (
        "two ranks of one sample each, of different token counts",
        SEVERAL,
        lambda case: case.layout.dp_size == len(case.step.samples) == len(tokens(case)) == 2,
        "1/1; 1/11 @ 0 | 1",
    ),
    ("a hole", SEVERAL, lambda case: bool(case.masked_tokens()), "1/0 @ 0"),
    (
        "a hole between tokens that count",
        SEVERAL,
        lambda case: any(b"\1\0\1" in s.loss_mask for s in case.step.samples),
        "1/101 @ 0",
    ),
    (
        "two slices, one of them empty",
        SEVERAL,
        lambda case: case.layout.cp_size == 2 and empty_shard(case),
        "1/1 @ 0 cp 2 zigzag",
    ),
    (
        "three slices",
        SEVERAL,
        lambda case: case.layout.cp_size == 3,
        "1/1 @ 0 cp 3 zigzag",
    ),
    (
        "contiguous slices",
        SEVERAL,
        lambda case: case.layout.cp_kind == "contiguous",
        "1/1 @ 0 cp 2 contiguous",
    ),
    ("a split group", SEVERAL, lambda case: bool(ranks_with_parts(case)), "1/1 1/1 @ 0 1"),
    (
        "a rollout of two samples",
        SEVERAL,
        lambda case: len(case.step.samples) > case.step.num_rollouts,
        "1/1+1/1 @ 0,1",
    ),
    (
        "a sample that does not count beside one that does",
        SEVERAL,
        lambda case: (
            0 < sum(s.num_unmasked > 0 for s in case.step.samples) < len(case.step.samples)
        ),
        "1/1; 1/0 @ 0,1",
    ),
    (
        "prompt groups of different sizes",
        SEVERAL,
        lambda case: len({len(members) for members in case.step.groups.values()}) == 2,
        "1/1; 1/1 1/1 @ 0,1,2",
    ),
    (
        "a prompt of more than five tokens",
        SEVERAL,
        lambda case: any(s.prompt_length > 5 for s in case.step.samples),
        "6/1 @ 0",
    ),
    (
        "every dimension",
        SEVERAL,
        lambda case: (
            case.layout.dp_size == case.layout.cp_size == len(case.layout.micro_batches[0]) == 2
        ),
        "1/1; 1/1; 1/1; 1/1 @ 0 1 | 2 3 cp 2 zigzag",
    ),
    (
        "ranks in another order",
        SHUFFLED,
        lambda case: case.layout.micro_batches[0] > case.layout.micro_batches[-1],
        "1/1; 1/1 @ 1 | 0",
    ),
    (
        "a dummy",
        PADDED,
        lambda case: len(case.step.samples) > case.step.num_rollouts,
        "1/1+1/0 @ 0,1",
    ),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("space", "wanted", "expected"),
    [row[1:] for row in SMALLEST],
    ids=[row[0] for row in SMALLEST],
)
def test_the_smallest_case(
    space: Space, wanted: Callable[[Case], bool], expected: str, seed: int
) -> None:
    found = smallest(cases(space), wanted, seed)
    assert text(found) == expected
    assert not any(found.losses)
    assert found in space


def test_a_loss_shrinks_by_itself() -> None:
    found = smallest(cases(), lambda case: min(case.losses) < 0, 0)
    assert (text(found), found.losses) == ("1/1 @ 0", (-1 / 256,))


def test_a_rejected_token_and_another() -> None:
    space = Space(rejects=True)
    found = smallest(cases(space), lambda c: c.step.samples[0].original_mask is not None, 0)
    assert (text(found), found.step.samples[0].original_mask) == ("1/01 @ 0", b"\1\1")


@pytest.mark.parametrize("seed", SEEDS)
def test_three_tokens_in_two_unequal_micro_batches(seed: int) -> None:
    """On two samples or three: one longer and one left out at once is more than shrinking does."""

    def wanted(case: Case) -> bool:
        return case.layout.num_microbatches == 2 and len(tokens(case)) == 2

    found = smallest(cases(), wanted, seed)
    assert text(found) in ("1/1; 1/11 @ 0 1", "1/1; 1/1; 1/1 @ 0,2 1")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_smallest_step(seed: int) -> None:
    def wanted(step: Step) -> bool:
        return step.num_groups > 1 and len({s.response_length for s in step.samples}) > 1

    assert format_step(smallest(steps(), wanted, seed)) == "1/1; 1/11"


@pytest.mark.parametrize("seed", SEEDS)
def test_the_smallest_layout(seed: int) -> None:
    step = parse_step("1/1 1/11; 1/111 1/1")
    assert smallest(layouts(step), lambda _: True, seed) == Layout.trivial(4)
    spread = smallest(layouts(step), lambda layout: layout.cp_size > 2, seed)
    assert sizes(spread) == (1, 3, 1)
    ranks = smallest(layouts(step), lambda layout: layout.dp_size == 3, seed)
    assert ranks.micro_batches == (((0, 3),), ((1,),), ((2,),))


@given(layout=layouts(parse_step("1/1 1/11; 1/111; 1/1"), Space(4, 1, 4, whole_groups=True)))
def test_prompt_groups_stay_whole_where_they_shall(layout: Layout) -> None:
    assert layout.dp_size * layout.num_microbatches <= 3
    assert any({0, 1} <= set(cell) for _, _, cell in layout.cells())


SHARDS = Space(4, 1, 4, whole_shards=True)
GROUPS = parse_step("1/1 1/11 1/1; 1/111 1/1; 1/1; 1/11 1/1")


@given(layout=layouts(GROUPS, SHARDS))
def test_prompt_groups_stay_on_one_rank_where_they_shall(layout: Layout) -> None:
    assert case_of(GROUPS, layout) in SHARDS


def test_on_that_rank_they_may_be_in_several_micro_batches() -> None:
    def split(layout: Layout) -> bool:
        return bool(ranks_with_parts(case_of(GROUPS, layout))) and layout.dp_size == 2

    assert smallest(layouts(GROUPS, SHARDS), split, 0).dp_size == 2


def case_of(step: Step, layout: Layout) -> Case:
    return Case(step, layout, (0.0,) * step.num_response_tokens)


@given(case=cases(SHARDS))
def test_what_is_drawn_of_whole_shards_is_in_their_space(case: Case) -> None:
    assert case in SHARDS


@given(layout=layouts(parse_step("0/1 1/11")))
def test_without_a_prompt_there_are_no_slices(layout: Layout) -> None:
    assert layout.cp_size == 1


def test_a_space_without_a_layout_is_refused() -> None:
    with pytest.raises(InputError, match=r"no layout of this space .* min_world=2"):
        smallest(layouts(parse_step("1/1"), Space(max_dp=2, min_world=2)), lambda _: True, 0)


@given(case=cases())
def test_by_default_every_kind_of_case_is_drawn(case: Case) -> None:
    assert case in SEVERAL
