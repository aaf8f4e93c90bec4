"""Who owns which token: the rule and the counts of parallel.md."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggverify.errors import InputError
from aggverify.generation.space import Space
from aggverify.generation.strategies import cases
from aggverify.oracles import Sample
from aggverify.steps.layouts import (
    Layout,
    contiguous_pieces,
    owned_pieces,
    token_owner,
    visible_pieces,
    zigzag_pieces,
)
from aggverify.steps.notation import parse_step

SAMPLES = ((3, 7), (9, 4), (2, 11), (17, 1))


def local_counts(cp_size: int, cp_rank: int) -> list[int]:
    return [
        sum(b - a for a, b in zigzag_pieces(prompt, response, cp_size, cp_rank))
        for prompt, response in SAMPLES
    ]


@pytest.mark.parametrize(
    ("cp_size", "expected"),
    [
        (2, [[1, 0, 3, 1], [6, 4, 8, 0]]),
        (3, [[0, 0, 2, 1], [3, 0, 3, 0], [4, 4, 6, 0]]),
        (4, [[0, 0, 1, 0], [2, 0, 2, 0], [2, 2, 4, 1], [3, 2, 4, 0]]),
    ],
)
def test_zigzag_local_counts(cp_size: int, expected: list[list[int]]) -> None:
    assert [local_counts(cp_size, rank) for rank in range(cp_size)] == expected


def test_a_rank_may_own_no_response_token() -> None:
    def counts(prompt: int, response: int, cp: int) -> list[int]:
        return [
            sum(b - a for a, b in zigzag_pieces(prompt, response, cp, rank)) for rank in range(cp)
        ]

    assert counts(9, 4, 2) == [0, 4]
    assert counts(40, 3, 4) == [0, 3, 0, 0]


@given(
    prompt=st.integers(1, 50), response=st.integers(0, 60), cp=st.integers(1, 8), bshd=st.booleans()
)
def test_zigzag_owns_every_token_once(prompt: int, response: int, cp: int, bshd: bool) -> None:
    chunk = -(-(prompt + response + 5) // (2 * cp)) if bshd else 0
    owned = [
        t
        for rank in range(cp)
        for a, b in zigzag_pieces(prompt, response, cp, rank, chunk=chunk)
        for t in range(a, b)
    ]
    assert sorted(owned) == list(range(response))


def test_without_a_prompt_the_first_token_belongs_to_nobody() -> None:
    owned = [t for c in range(2) for a, b in zigzag_pieces(0, 6, 2, c) for t in range(a, b)]
    assert sorted(owned) == [1, 2, 3, 4, 5]


def test_local_order_is_first_half_then_second_half() -> None:
    assert zigzag_pieces(1, 8, 2, 0) == ((0, 3),)
    assert zigzag_pieces(1, 15, 2, 0) == ((0, 4), (12, 15))
    assert zigzag_pieces(1, 15, 2, 1) == ((4, 8), (8, 12))


@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5),
    cp=st.integers(1, 6),
)
def test_contiguous_owns_every_token_once(lengths: list[tuple[int, int]], cp: int) -> None:
    samples = [Sample(p, (1,) * r, i, i) for i, (p, r) in enumerate(lengths)]
    for i, (_, response) in enumerate(lengths):
        owned = [
            t
            for rank in range(cp)
            for a, b in contiguous_pieces(samples, cp, rank)[i]
            for t in range(a, b)
        ]
        assert owned == list(range(response))


def test_contiguous_chunks_cut_the_concatenated_stream() -> None:
    samples = [Sample(2, (1, 1, 1), 0, 0), Sample(1, (1,) * 4, 1, 1)]
    # stream of ten: p p r r r p r r r r; the logit before a token owns it
    assert contiguous_pieces(samples, 2, 0) == (((0, 3),), ())
    assert contiguous_pieces(samples, 2, 1) == ((), ((0, 4),))


def test_gathered_sees_everything_and_owns_a_slice() -> None:
    step = parse_step("1/111111111111111")
    layout = Layout((((0,),),), 2, "gathered")
    assert visible_pieces(step, (0,), layout, 1) == (((0, 15),),)
    assert owned_pieces(step, (0,), layout, 1) == (((4, 8), (8, 12)),)


@given(cases(Space(max_dp=4, max_cp=4, max_microbatches=3, cp_kinds=("zigzag", "contiguous"))))
def test_every_token_has_one_owner_inside_the_layout(case: object) -> None:
    from aggverify.steps.case import Case

    assert isinstance(case, Case)
    owner = token_owner(case.step, case.layout)
    where = {i: (d, k) for d, k, members in case.layout.cells() for i in members}
    for i, sample in enumerate(case.step.samples):
        for t in range(sample.response_length):
            d, c, k = owner[case.step.offsets[i] + t]
            assert (d, k) == where[i]
            assert c < case.layout.cp_size


@pytest.mark.parametrize(
    ("micro_batches", "cp_size", "kind", "message"),
    [
        ((((0,),), ((1,), (2,))), 1, "zigzag", r"same number .* got \[1, 2\]"),
        ((((),),), 1, "zigzag", "without a sample"),
        ((((0,),),), 0, "zigzag", "cp_size must be an integer of at least 1, got 0"),
        ((((0,),),), 2, "zigzg", "did you mean 'zigzag'"),
    ],
)
def test_bad_layouts_are_refused(
    micro_batches: object, cp_size: int, kind: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Layout(micro_batches, cp_size, kind)  # type: ignore[arg-type]


def test_a_layout_must_hold_every_sample_once() -> None:
    step = parse_step("1/1 1/1")
    with pytest.raises(InputError, match="exactly once"):
        Layout((((0, 0),),)).check_covers(step)


def test_context_parallelism_needs_a_prompt() -> None:
    with pytest.raises(InputError, match=r"samples \[1\] have none"):
        Layout((((0, 1),),), 2).check_covers(parse_step("1/1 0/1"))
