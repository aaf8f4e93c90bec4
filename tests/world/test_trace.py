"""A collective stands at the line that called it, in whatever folder that is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import aggverify
from aggverify.world import trace

TORCH, OURS = Path(torch.__file__).parent, Path(aggverify.__file__).resolve().parent


def place(file: Path, inner: Path | None = None) -> str:
    """Where a collective stands that is called in ``file``, through ``inner``."""
    where = trace._where
    if inner is not None:
        exec(compile("def call(where): return where()", inner, "exec"), names := {})
        call = names["call"]
        return str(eval(compile("call(where)", file, "eval"), {"call": call, "where": where}))
    return str(eval(compile("where()", file, "eval"), {"where": where}))


@pytest.mark.parametrize("folder", [TORCH.with_name("torchtitan"), OURS.with_name("aggverify_x")])
def test_a_folder_whose_name_begins_alike_is_the_candidates(folder: Path) -> None:
    assert place(folder / "loss.py") == "loss.py:1"
    assert place(folder / "loss.py", TORCH / "distributed" / "nn.py") == "loss.py:1"


def test_what_this_package_calls_has_no_place() -> None:
    assert place(OURS / "engines" / "mean.py") == ""
