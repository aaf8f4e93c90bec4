"""Padding goes on and comes off; what is left is the step as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aggverify.generation.catalogue import hard_cases, plain_losses
from aggverify.oracles import MODES, Step, weights
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import format_step, parse_micro_batches, parse_step
from aggverify.steps.padding import Padding, fully_padded, padded, stripped, with_padding
from aggverify.steps.reordering import tidied


def case(text: str, cells: str) -> Case:
    step = parse_step(text)
    return Case(step, Layout(parse_micro_batches(cells)), plain_losses(step))


@pytest.mark.parametrize(
    ("padding", "wide"),
    [
        (Padding(columns=1), "2/10; 3/1010"),
        (Padding(even=True), "2/100; 3/101"),
        (Padding(columns=2, even=True), "2/10000; 3/10100"),
    ],
)
def test_columns(padding: Padding, wide: str) -> None:
    bare = case("2/1; 3/101", "0 | 1")
    assert format_step(with_padding(bare, padding).step) == wide
    assert stripped(with_padding(bare, padding))[0] == bare


def test_a_dummy_joins_the_first_sample_of_its_micro_batch() -> None:
    wide = with_padding(case("2/1 4/11; 3/101", "0,1 | 2"), Padding(dummy=True))
    assert wide.layout.micro_batches == (((0, 1, 3),), ((2, 4),))
    first, second = wide.step.samples[3:]
    assert (first.rollout, first.group, first.loss_mask) == (0, 0, b"\0")
    assert (second.rollout, second.group, second.loss_mask) == (2, 1, b"\0\0\0")


@pytest.mark.parametrize("mode", MODES)
def test_no_mode_sees_padding(mode: str) -> None:
    divisor = 16 if MODES[mode].needs_divisor else None
    for bare in hard_cases():
        wide = with_padding(bare, Padding(2, True, True))
        expected = weights(mode, bare.step, divisor=divisor)
        found = weights(mode, wide.step, divisor=divisor)
        _, places = stripped(wide)
        kept = [w for w in expected if w]
        assert [found[t] for t in places if found[t]] == kept
        assert sum(found) == sum(expected)


def test_a_tidied_case_stays_as_it_is() -> None:
    for bare in hard_cases():
        tidy, order = tidied(bare)
        assert order == sorted(order)
        assert tidy == bare or tidy.layout != bare.layout


def test_rows_get_their_columns_and_micro_batches_their_dummies() -> None:
    bare = case("2/101 1/1; 3/11", "2,0 | 1")
    step, layout = padded(bare.step, bare.layout, Padding(columns=1, dummy=True))
    shown = [(s.prompt_length, bytes(s.loss_mask), s.rollout, s.group) for s in step.samples]
    assert shown == [
        (2, b"\1\0\1\0", 0, 0),
        (1, b"\1\0", 1, 0),
        (3, b"\1\1\0", 2, 1),
        (3, b"\0\0\0", 2, 1),
        (1, b"\0\0", 1, 0),
    ]
    assert layout.micro_batches == (((2, 0, 3),), ((1, 4),))
    assert padded(bare.step, bare.layout, Padding()) == (bare.step, bare.layout)


def test_padding_has_losses_of_its_own() -> None:
    bare = case("2/11; 1/1", "0 | 1")
    wide = with_padding(bare, Padding(columns=1, even=True, dummy=True))
    a, b, c = bare.losses
    assert wide.losses == (a, b, 1.0, c, 1.0, 1.0, *(1.0,) * 6)


def test_what_is_stripped_and_where_the_rest_stood() -> None:
    wide = case("2/1010 1/000; 3/11+1/00+1/00 1/00+2/0", "5,0,4 2 | 1 3,6")
    bare, places = stripped(wide)
    # Sample 1 and 5 are all their rollouts have; 3 has nothing left of its micro-batch but itself.
    assert format_step(bare.step) == "2/101 1/0; 3/11+1/0 1/0"
    assert bare.layout.micro_batches == (((4, 0), (2,)), ((1,), (3,)))
    assert places == [0, 1, 2, 4, 7, 8, 9, 13]
    assert bare.losses == tuple(wide.losses[t] for t in places)


def test_rejected_tokens_are_content_no_more() -> None:
    step = parse_step("1/10")
    rejected = replace(step.samples[0], original_mask=b"\1\1")
    wide = replace(case("1/10", "0"), step=Step((rejected,)))
    assert stripped(wide)[0].step.samples[0].original_mask is None


def test_dummies_only_where_rows_are_not_dealt_in_order() -> None:
    in_order = fully_padded(case("1/1 2/111", "0 | 1"))
    assert format_step(in_order.step) == "1/1000 2/1110"
    mixed = fully_padded(case("1/1 2/111", "1 | 0"))
    assert format_step(mixed.step) == "1/1000+1/0000 2/1110+2/0000"
    assert mixed.layout.micro_batches == (((1, 2),), ((0, 3),))
