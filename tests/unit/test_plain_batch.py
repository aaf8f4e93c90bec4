"""A script's batch is data: what the reducer asks of it, and all there is where that is unknown."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import tensor

from aggverify.conventions import MicroBatch, PlainSite, Site
from aggverify.conventions.asked_of_batch import asked_of_batch
from aggverify.conventions.plain_batch import _BY_THE_CALL, batches, losses_of
from aggverify.conventions.plain_text import named, row
from aggverify.conventions.rows import Rows
from aggverify.conventions.step_batches import Totals, micro_batch
from aggverify.generation.catalogue import plain_losses
from aggverify.report.plain_source import functions
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

STEP = parse_step("2/1 3/101; 5/11 1/1011+1/00")


def site(cells: str = "0,1 2 | 4 3", cp: int = 1, kind: CpKind = "zigzag") -> PlainSite:
    layout = Layout(parse_micro_batches(cells), cp, kind)
    return PlainSite(Case(STEP, layout, plain_losses(STEP)), None, 2.5, True)


def read(text: str) -> Any:
    return eval(text, {"tensor": tensor})  # our own


def plain(value: Any) -> Any:
    """Tensors as lists, wherever they are."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.tolist() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("cp", [(1, "zigzag"), (2, "zigzag"), (2, "bshd"), (2, "gathered")])
def test_what_it_tells_is_what_a_rank_is_told(cp: tuple[int, CpKind]) -> None:
    where = site("0,1 2 | 4 3", *cp)
    told = batches(where, asked=None).told
    step = read(told.step)
    for rank, cells in enumerate(told.cells):
        d, c = divmod(rank, cp[0])
        given = (where.case, None, 2.5, True, d, c, None, None, torch.device("cpu"))
        real = Site(*given)
        for k, text in enumerate(cells):
            batch, shown = micro_batch(real, k, Totals(real)), step | read(text)
            assert {f.name for f in fields(MicroBatch) if f.name[0] != "_"} <= set(shown) | (
                _BY_THE_CALL
            )
            for name, value in shown.items():
                assert plain(value) == plain(getattr(batch, name)), name
            own = read(losses_of(where.case, d, c, k, None))
            assert own.dtype == torch.int64 and len(own) == len(batch.mask)


def test_losses_and_masks_can_be_padded_rows() -> None:
    where = site("0,1,2,3,4")
    assert read(losses_of(where.case, 0, 0, 0, Rows("padded", "left"))).tolist()[:2] == [
        [-1, -1, -1, 0],
        [-1, 1, 2, 3],
    ]
    told = batches(where, Rows(width="step"), asked=frozenset({"mask"})).told
    assert read(told.cells[0][0])["mask"].tolist()[1] == [1, 0, 1, 0]


def test_what_is_asked_is_read_from_the_source() -> None:
    text = "    def reduce(losses, batch):\n        return losses.sum() / batch.num_tokens\n"
    helper = "def kept(x, batch):\n    return batch.mask * x"
    assert asked_of_batch([text]) == {"sum", "num_tokens"}
    handed = "def f(losses, batch):\n    return kept(losses, batch)"
    assert asked_of_batch([handed]) is None
    assert asked_of_batch([handed, helper]) == {"mask"}
    assert asked_of_batch(["def f(batch):\n    b = batch"]) is None
    assert asked_of_batch(["def f(batch:"]) is None
    assert asked_of_batch(None) is None
    step = "def train(model, batches):\n    for batch in batches:\n        model(batch)"
    assert asked_of_batch([step]) is None
    assert asked_of_batch([step], handed_to=frozenset({"model"})) == frozenset()


def test_only_what_is_asked_for_is_there() -> None:
    told = batches(site(), asked=frozenset({"num_samples"})).told
    assert "num_samples=" in told.step and "step_width" not in told.step
    assert "loss_masks=" in told.cells[0][0] and "original_masks" not in told.cells[0][0]
    assert "class MicroBatch" in batches(site(), asked=None).code
    assert batches(site(), asked=frozenset({"rows"})).made.startswith("MicroBatch(")
    assert batches(site(), asked=frozenset()).code == ""


def test_a_functions_source_goes_as_far_as_the_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(
        "def kept(x, batch):\n    return x\ndef other():\n    pass\n"
    )
    (tmp_path / "r.py").write_text("from parts import kept\ndef f(x, batch):\n    return kept(x)\n")
    found = functions(str(tmp_path / "r.py"), "f")
    assert found is not None and [text.split("(")[0] for text in found] == ["def f", "def kept"]
    assert functions(str(tmp_path / "r.py"), "g") is None
    assert functions(str(tmp_path / "none.py"), "f") is None


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], "[]"),
        ([1, 0, 1], "[1, 0, 1]"),
        ([1] * 9, "[1] * 9"),
        ([0, *[1] * 9, 5], "[0, *[1] * 9, 5]"),
        ([3, *range(20, 40)], "[3, *range(20, 40)]"),
        ([0.5, float("nan")], '[0.5, float("nan")]'),
    ],
)
def test_rows_are_short(numbers: list[float], text: str) -> None:
    assert row(numbers) == text
    assert str(read(text)) == str(numbers)


def test_long_data_stands_on_several_lines() -> None:
    text = named({f"number_{n}": str(n) for n in range(12)}, 4)
    assert read(text) == {f"number_{n}": n for n in range(12)}
    assert text.count("\n") > 1 and max(map(len, text.split("\n"))) <= 100
    assert named({"a": "1"}, 4) == "dict(a=1)"


def test_a_site_can_be_of_another_step() -> None:
    other = replace(site(), elsewhere=2**31)
    told = read(batches(other, asked=frozenset()).told.step)
    assert told["num_tokens"] == 2**31 + 8 and told["num_rollouts"] == 5
