"""When a term is told to be divided by cp_size: gathered, and no other size would do."""

from __future__ import annotations

from fractions import Fraction

import pytest

from aggverify.checks.terms import _is_shared_out
from aggverify.steps.layouts import CpKind, Layout

HALF = Fraction(1, 2)
ONE = (((0, 1),),)


@pytest.mark.parametrize("ratios", [[HALF], [HALF, HALF]])
def test_all_halved_on_two_gathered_ranks(ratios: list[Fraction]) -> None:
    assert _is_shared_out(ratios, Layout(ONE, 2, "gathered"))


@pytest.mark.parametrize("ratios", [[], [HALF, Fraction(1)], [Fraction(2)], [Fraction(1, 3)]])
def test_other_weights_are_not(ratios: list[Fraction]) -> None:
    assert not _is_shared_out(ratios, Layout(ONE, 2, "gathered"))


@pytest.mark.parametrize(
    ("cells", "cp_size", "kind"),
    [
        (ONE, 2, "zigzag"),
        (ONE, 1, "zigzag"),
        ((((0,),), ((1,),)), 2, "gathered"),
        ((((0,), (1,)),), 2, "gathered"),
    ],
)
def test_layouts_in_which_something_else_makes_it(
    cells: tuple[tuple[tuple[int, ...], ...], ...], cp_size: int, kind: CpKind
) -> None:
    assert not _is_shared_out([HALF, HALF], Layout(cells, cp_size, kind))
