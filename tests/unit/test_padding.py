"""Padding goes on and comes off; what is left is the step as it was."""

from __future__ import annotations

import pytest

from aggverify.generation.catalogue import hard_cases, plain_losses
from aggverify.oracles import MODES, weights
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import format_step, parse_micro_batches, parse_step
from aggverify.steps.padding import Padding, stripped, with_padding
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
