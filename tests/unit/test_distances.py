"""How far a condition was from going the other way is read without running anybody's code."""

from __future__ import annotations

import ast
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aggverify.conventions import MicroBatch
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.trainer import distances
from aggverify.trainer.covering import Covering
from aggverify.trainer.distances import Distances, distance, sides
from aggverify.trainer.source import read
from tests.unit.test_covered import module

ALONE = Case(parse_step("1/1"), Layout.trivial(1), (0.0,))
LIMIT = 512


class Sized:
    slow = 3

    def __init__(self) -> None:
        self.rows = 40
        self.asked = 0

    @property
    def columns(self) -> int:
        self.asked += 1
        return 5

    def __len__(self) -> int:
        self.asked += 1
        return 7


def apart(text: str, /, **names: Any) -> float | None:
    """The distance of that condition where names have these values."""
    test = ast.parse(text, mode="eval").body
    compared = sides(test)
    if compared is None:
        return None
    frame: list[Any] = []
    source = f"def at({', '.join(names)}):\n    frame.append(sys._getframe())\n"
    scope: dict[str, Any] = {"frame": frame, "sys": sys, "math": math, "LIMIT": LIMIT}
    exec(source, scope)
    scope["at"](**names)
    found = distance(compared, frame[0])
    return None if found == math.inf else found


@pytest.mark.parametrize(
    "text, expected",
    [
        ("n > 10", 3.0),
        ("n <= LIMIT", 505.0),
        ("10 != n", 3.0),
        ("n", 7.0),
        ("n % 4 == 1", 2.0),
        ("n * 2**30 / 2**20 > 8_000", 832.0),
        ("-n < 0", 7.0),
        ("len(lengths) > 5", 2.0),
        ("max(lengths) * len(lengths) > 100", 85.0),
        ("sum(lengths) // 2 == 0", 4.0),
        ("max(n, 9) > LIMIT", 503.0),
        ("min(lengths) > n", 6.0),
        ("abs(n - 9) >= 1", 1.0),
        ("lengths[1] > 4", 1.0),
        ("table['a'] > 4", 2.0),
        ("n.bit_length() > 13", 10.0),
        ("math.log2(8) > 12", 9.0),
        ("t.numel() > 10", 4.0),
        ("t.shape[1] > 10", 7.0),
        ("t.size(0) > 10", 8.0),
        ("len(t) > 10", 8.0),
        ("t.ndim == 3", 1.0),
        ("t[0][0] > 10", None),
        ("one > 10", 6.0),
        ("one.item() > 10", 6.0),
        ("n.bit_count() > 3", None),
        ("sized.rows > 50", 10.0),
        ("sized.columns > 50", None),
        ("sized.missing > 50", None),
        ("len(sized) > 50", None),
        ("options.limit > 50", 20.0),
        ("f(n) > 50", None),
        ("(n := 7) > 50", 43.0),
        ("n > 1 > 0", None),
        ("n is None", None),
        ("not n", None),
        ("flag", None),
        ("n > flag", None),
        ("n / 0 > 1", None),
        ("n > inf", None),
        ("2 ** (n * 1000) > 1", None),
        ("1 << n * 100 > 1", None),
        ("other > 1", None),
        ("text > 1", None),
        ("sum(x for x in lengths) > 1", None),
        ("any(lengths) > 1", None),
    ],
)
def test_distances_of_conditions(text: str, expected: float | None) -> None:
    sized = Sized()
    names = {
        "n": 7,
        "lengths": [1, 3, 5],
        "table": {"a": 2},
        "t": torch.zeros(2, 3),
        "one": torch.tensor(4.0, requires_grad=True),
        "sized": sized,
        "options": SimpleNamespace(limit=30),
        "f": lambda n: pytest.fail("it was called"),
        "flag": True,
        "inf": math.inf,
        "text": "7",
    }
    assert apart(text, **names) == expected
    assert sized.asked == 0


def test_what_is_read_of_a_micro_batch_is_its_own() -> None:
    assert isinstance(MicroBatch.__dict__["mask"], property)
    assert MicroBatch.mask.fget.__module__.startswith("aggverify.")  # type: ignore[attr-defined]


def test_a_descriptor_that_keeps_its_value_under_its_own_name_is_not_asked() -> None:
    class Checked:
        def __get__(self, owner: Any, kind: Any) -> int:
            pytest.fail("it was asked")

        def __set__(self, owner: Any, value: int) -> None:
            vars(owner)["limit"] = value

    class Options:
        limit = Checked()

    options = Options()
    options.limit = 30
    assert apart("options.limit > 3", options=options) is None


def test_nothing_is_asked_of_an_object_with_a_getattribute_of_its_own() -> None:
    class Telling:
        def __init__(self) -> None:
            self.rows = 30

        def __getattribute__(self, name: str) -> Any:
            pytest.fail("it was asked")

    assert apart("x.rows > 3", x=Telling()) is None


WALK = """def reduce(lengths, most):
    found = 0
    for length in lengths:
        if length > most:
            found += 1
    return [n for n in lengths if n * 2 >= most], found
"""


def test_the_nearest_of_a_case_is_noted_for_each_outcome(tmp_path: Path) -> None:
    file = tmp_path / "walk.py"
    made = module(tmp_path, WALK)
    source = read(made)
    assert source is not None and file.parent == tmp_path
    noted = Covering(str(made.__file__), source.conditions)
    place = {c.text: n for n, c in enumerate(source.conditions.all)}
    first, second = place["length > most"], place["n * 2 >= most"]
    for wanted in (True, False):
        with noted.noting(ALONE, distances=wanted):
            made.reduce([1, 7, 12, 30], 10)
        told = dict(noted.distances)
        expected = {2 * first: 3.0, 2 * first + 1: 2.0, 2 * second: 8.0, 2 * second + 1: 4.0}
        assert told == (expected if wanted else {})


def test_a_long_loop_costs_so_much_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(distances, "distance", lambda *_: asked.append(1) or 1.0)
    found = Distances()
    compared = sides(ast.parse("n > 1", mode="eval").body)
    for _ in range(distances.MOST + 10):
        found.add(0, compared, sys._getframe())
    assert len(asked) == distances.MOST and found.least == {0: 1.0}
