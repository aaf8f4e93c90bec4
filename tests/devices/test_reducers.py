"""The reducers of tests that need a CUDA device are what they are said to be, on a processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Cli

HERE = Path(__file__).parent
BRIEF = ("--profile", "quick", "--max-examples", "2", "--world", "2")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["local_means_on_cuda", "scattered_on_the_device"])
def test_right_on_a_processor(cli: Cli, name: str) -> None:
    ran = cli("check", f"{HERE / 'reducers.py'}:{name}", *BRIEF)
    assert ran.code == 0, ran
    never = "local_means" in name
    assert ("never ran" in ran.out) == never, "the line for the other device is pointed at"
