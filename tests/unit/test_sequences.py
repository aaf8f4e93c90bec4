"""Whole sequences: ids, and of which positions a rank has logits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from aggverify.generation.space import Space
from aggverify.generation.strategies import cases
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout, owned_pieces, positions
from aggverify.steps.notation import parse_step
from aggverify.steps.sequences import (
    NOTHING,
    before,
    next_ids,
    row_positions,
    rows,
    token_ids,
    vocabulary,
)

KINDS = Space(cp_kinds=("zigzag", "contiguous", "bshd"))


@given(case=cases(KINDS))
def test_the_logits_of_a_rank_predict_the_tokens_it_owns(case: Case) -> None:
    step, layout = case.step, case.layout
    for _, _, members in layout.cells():
        everywhere = []
        for c in range(layout.cp_size):
            own = rows(step, members, layout, c)
            pieces = owned_pieces(step, members, layout, c)
            tokens = positions([step.offsets[i] for i in members], pieces)
            assert own.token[own.token != NOTHING].tolist() == tokens.tolist()
            for i, there in zip(members, row_positions(step, members, layout, c), strict=True):
                assert own.position[own.sample == i].tolist() == there.tolist()
                everywhere += [(i, p) for p in there.tolist()]
        lengths = {i: before(s) + s.response_length for i, s in enumerate(step.samples)}
        assert sorted(everywhere) == [(i, p) for i in sorted(members) for p in range(lengths[i])]


@pytest.mark.parametrize(("text", "own"), [("2/101; 0/11", True), (f"1/{'1' * 700}", False)])
def test_a_token_is_told_from_its_neighbours_by_its_id(text: str, own: bool) -> None:
    step = parse_step(text)
    ids = np.concatenate(token_ids(step))
    assert ids.min() >= 1 and ids.max() < vocabulary(step)
    near = [ids[:-n] != ids[n:] for n in (1, 2, 3)]
    assert all(map(np.all, near)) and (len(set(ids.tolist())) == len(ids)) == own


def test_the_end_of_a_sequence_predicts_nothing() -> None:
    step = parse_step("2/101; 0/11")
    case_rows = rows(step, (1, 0), Layout.trivial(2), 0)
    assert case_rows.sample.tolist() == [1] * 3 + [0] * 5
    assert case_rows.token.tolist() == [3, 4, NOTHING, NOTHING, 0, 1, 2, NOTHING]
    assert next_ids(step, case_rows).tolist() == [7, 8, 0, 2, 3, 4, 5, 0]
