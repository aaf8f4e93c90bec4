"""The forms in which an adapter's function is given per-token values, place by place."""

from __future__ import annotations

import pytest

from aggverify.conventions.rows import RowForm, places
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

STEP = parse_step("3/11 1/1; 2/111111")
"""Whole sequences of 5, 2 and 8 tokens."""


def case(micro_batches: str, cp_size: int = 1, kind: CpKind = "zigzag") -> Case:
    return Case(STEP, Layout(parse_micro_batches(micro_batches), cp_size, kind), (1.0,) * 9)


@pytest.mark.parametrize(
    ("rows", "micro_batches", "k", "shape", "index"),
    [
        (RowForm("padded"), "0,1 2", 0, (2, 2), [0, 1, 2]),
        (RowForm("padded", "left"), "0,1 2", 0, (2, 2), [0, 1, 3]),
        (RowForm("padded", width="step"), "0,1 2", 0, (2, 6), [0, 1, 6]),
        (RowForm("whole"), "0,1 2", 0, (2, 5), [2, 3, 5]),
        (RowForm("whole", "left"), "0,1 2", 0, (2, 5), [2, 3, 8]),
        (RowForm("whole", width="step"), "0,1 2", 0, (2, 8), [2, 3, 8]),
        (RowForm("packed"), "0,1 2", 0, (7,), [2, 3, 5]),
        (RowForm("packed"), "0,1 2", 1, (8,), [1, 2, 3, 4, 5, 6]),
    ],
)
def test_where_each_token_stands(
    rows: RowForm, micro_batches: str, k: int, shape: tuple[int, ...], index: list[int]
) -> None:
    found = places(rows, case(micro_batches), 0, 0, k)
    assert (found.shape, found.index.tolist()) == (shape, index)


TOTALS, PROMPTS, RESPONSES = (5, 2, 8), (3, 1, 2), (2, 1, 6)


def sliced(total: int, chunk: int, cp_size: int, rank: int) -> list[int]:
    """As Megatron-LM slices a sequence: chunk by chunk, two a rank, padding (-1) included."""
    padded = [*range(total), *[-1] * (2 * cp_size * chunk - total)]
    chunks = [padded[n * chunk : (n + 1) * chunk] for n in range(2 * cp_size)]
    return chunks[rank] + chunks[2 * cp_size - 1 - rank]


@pytest.mark.parametrize("cp_size", [2, 3])
@pytest.mark.parametrize("kind", ["zigzag", "bshd"])
def test_a_shard_has_the_logits_of_its_tokens(kind: CpKind, cp_size: int) -> None:
    mine = case("0,1,2", cp_size, kind)
    for rank in range(cp_size):
        found = places(RowForm("packed"), mine, 0, rank, 0)
        stream: list[tuple[int, int]] = []
        for i, total in enumerate(TOTALS):
            chunk = -(-(max(TOTALS) if kind == "bshd" else total) // (2 * cp_size))
            stream += [(i, at) for at in sliced(total, chunk, cp_size, rank)]
        logits = {(i, n - 1 + t) for i, n in enumerate(PROMPTS) for t in range(RESPONSES[i])}
        wanted = [place for place, logit in enumerate(stream) if logit in logits]
        assert sorted(found.index.tolist()) == wanted
        assert found.shape == (len(stream),) and len(stream) > 0


@pytest.mark.parametrize("rank", range(3))
def test_a_chunk_of_the_stream_is_filled_up(rank: int) -> None:
    found = places(RowForm("packed"), case("0,1,2", 3, "contiguous"), 0, rank, 0)
    stream = [(i, at) for i, total in enumerate(TOTALS) for at in range(total)]
    logits = {(i, n - 1 + t) for i, n in enumerate(PROMPTS) for t in range(RESPONSES[i])}
    own = stream[5 * rank : 5 * rank + 5]
    assert found.index.tolist() == [place for place, logit in enumerate(own) if logit in logits]
    assert found.shape == (5,) and sum(found.lengths) == 5


def test_a_shard_without_a_response_token_is_not_empty() -> None:
    """All of the prompt's logits are on the last of four ranks, and none of the response's."""
    step = parse_step("30/1")
    mine = Case(step, Layout((((0,),),), 4, "zigzag"), (1.0,))
    shapes = [places(RowForm("whole"), mine, 0, rank, 0) for rank in range(4)]
    assert [(found.shape, len(found.index)) for found in shapes] == [
        ((1, 8), 1),
        ((1, 8), 0),
        ((1, 8), 0),
        ((1, 8), 0),
    ]
