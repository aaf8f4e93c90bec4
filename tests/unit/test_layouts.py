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
    MAX_RANKS,
    CpKind,
    Layout,
    contiguous_pieces,
    owned_pieces,
    positions,
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


def test_rows_of_a_rank_have_its_widest_rows_chunks() -> None:
    step = parse_step("3/1111111 9/1111; 1/1")
    layout = Layout((((0,), (1,)), ((2,), (2,))), 2, "bshd")

    def owned(i: int) -> list[int]:
        pieces = (owned_pieces(step, (i,), layout, rank) for rank in range(2))
        return [sum(b - a for [part] in [found] for a, b in part) for found in pieces]

    # 13 tokens are 4 in a chunk; packed, the first sample has chunks of 3, and [1, 6] of them
    assert [owned(0), owned(1), owned(2)] == [[2, 5], [0, 4], [1, 0]]


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


SPREAD = Layout((((0,), (2, 1)), ((3,), (4,)), ((5,), (6,))), 4, "contiguous")


def test_sizes_of_a_layout() -> None:
    assert (SPREAD.dp_size, SPREAD.num_microbatches, SPREAD.world_size) == (3, 2, 12)
    assert not SPREAD.is_trivial
    assert Layout.trivial(3) == Layout((((0, 1, 2),),), 1, "zigzag")
    assert Layout.trivial(3).is_trivial
    assert not Layout((((0,), (1,)),)).is_trivial
    assert not Layout((((0,),), ((1,),))).is_trivial
    assert not Layout((((0,),),), 2).is_trivial
    assert list(SPREAD.cells())[:3] == [(0, 0, (0,)), (0, 1, (2, 1)), (1, 0, (3,))]


def test_a_layout_as_json() -> None:
    assert SPREAD.to_json() == {
        "cp": 4,
        "kind": "contiguous",
        "micro_batches": [[[0], [2, 1]], [[3], [4]], [[5], [6]]],
    }
    assert Layout.from_json(SPREAD.to_json()) == SPREAD


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"micro_batches": [[[True]]]}, "an integer of at least 0, got True"),
        ({"micro_batches": [[[-1]]]}, "an integer of at least 0, got -1"),
        ({"micro_batches": [[[0.0]]]}, "an integer of at least 0, got 0.0"),
        ({"micro_batches": [[0]]}, r"micro_batches\[0\]\[0\] must be a list, got 0"),
        ({"cp": "2"}, "at least 1, got '2'"),
        ({"cp": 1.5}, "at least 1, got 1.5"),
        ({"cp": 22}, "at most 64 ranks can be run, got cp_size 22 times 3 data-parallel ranks"),
    ],
)
def test_json_that_is_no_layout(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Layout.from_json(SPREAD.to_json() | change)


def test_as_many_ranks_as_can_be_run() -> None:
    assert Layout.from_json(Layout.trivial(1).to_json() | {"cp": MAX_RANKS}).world_size == 64
    ranks = {"cp": 1, "kind": "zigzag", "micro_batches": [[[d]] for d in range(MAX_RANKS + 1)]}
    with pytest.raises(InputError, match="times 65 data-parallel ranks"):
        Layout.from_json(ranks)


def test_one_slice_is_the_whole_response() -> None:
    assert zigzag_pieces(7, 5, 1, 0) == ((0, 5),)
    assert zigzag_pieces(0, 1, 1, 0) == ((0, 1),)
    assert zigzag_pieces(3, 0, 1, 0) == zigzag_pieces(3, 0, 2, 1) == ()


def test_a_padded_row_has_its_own_chunks() -> None:
    # chunks of three positions: 0 1 2 | 3 4 5 | 6 7 8 | 9 10 11; the logit of token t is at t + 1
    assert zigzag_pieces(2, 5, 2, 0, chunk=3) == ((0, 2),)
    assert zigzag_pieces(2, 5, 2, 1, chunk=3) == ((2, 5),)
    assert zigzag_pieces(2, 10, 2, 0, chunk=3) == ((0, 2), (8, 10))
    assert zigzag_pieces(2, 10, 2, 1, chunk=3) == ((2, 5), (5, 8))


def test_contiguous_chunks_of_a_stream_that_does_not_divide() -> None:
    samples = [Sample(1, (1,) * 2, 0, 0), Sample(2, (1,) * 2, 1, 1), Sample(1, (1,) * 3, 2, 2)]
    # logits of tokens at stream positions 0 1, 4 5, 7 8 9; chunks of four
    pieces = [contiguous_pieces(samples, 3, rank) for rank in range(3)]
    assert pieces[0] == (((0, 2),), (), ())
    assert pieces[1] == ((), ((0, 2),), ((0, 1),))
    assert pieces[2] == ((), (), ((1, 3),))


@pytest.mark.parametrize("kind", ["zigzag", "contiguous", "gathered"])
def test_without_slices_every_kind_is_the_same(kind: CpKind) -> None:
    step = parse_step("3/11 1/1; 2/111")
    layout = Layout((((2, 0), (1,)),), 1, kind)
    whole = (((0, 3),), ((0, 2),))
    assert owned_pieces(step, (2, 0), layout, 0) == whole
    assert visible_pieces(step, (2, 0), layout, 0) == whole


def test_what_is_sliced_is_seen_where_it_is_owned() -> None:
    step = parse_step("1/11 1/111")
    contiguous = Layout((((0, 1),),), 2, "contiguous")
    # seven positions, chunks of four: logits 0 1 of the first, 3 4 5 of the second
    assert visible_pieces(step, (0, 1), contiguous, 0) == (((0, 2),), ((0, 1),))
    assert owned_pieces(step, (0, 1), contiguous, 1) == ((), ((1, 3),))
    zigzag = Layout((((0, 1),),), 2)
    assert visible_pieces(step, (0, 1), zigzag, 0) == (((0, 1),), ((0, 1),))
    assert visible_pieces(step, (0, 1), zigzag, 1) == (((1, 2),), ((1, 2), (2, 3)))


def test_positions_of_pieces() -> None:
    found = positions([0, 10], [((0, 2), (3, 4)), ((1, 3),)])
    assert found.tolist() == [0, 1, 3, 11, 12]
    none = positions([0, 5], [(), ()])
    assert (none.size, none.dtype.kind) == (0, "i")


def test_owners_of_a_small_step() -> None:
    step = parse_step("1/11 1/111; 2/1 1/1")
    layout = Layout((((0,), (1,)), ((2,), (3,))), 2)
    assert token_owner(step, layout) == [
        *((0, 0, 0), (0, 1, 0)),
        *((0, 0, 1), (0, 1, 1), (0, 1, 1)),
        (1, 1, 0),
        (1, 0, 1),
    ]


def test_a_layout_must_hold_every_sample_once() -> None:
    step = parse_step("1/1 1/1")
    for cells in ((0, 0), (0,), (0, 1, 2), (1, 2)):
        with pytest.raises(InputError, match="each of the 2 samples exactly once"):
            Layout(((cells,),)).check_covers(step)
    Layout((((1,), (0,)),)).check_covers(step)


def test_context_parallelism_needs_a_prompt() -> None:
    with pytest.raises(InputError, match=r"samples \[1\] have none"):
        Layout((((0, 1),),), 2).check_covers(parse_step("1/1 0/1"))
    Layout((((0, 1),),), 1).check_covers(parse_step("1/1 0/1"))
    Layout((((0, 1),),), 2).check_covers(parse_step("1/1 2/1"))
