"""``python reports/pull_requests.py``: four mistakes that were merged once, and their comments."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from aggverify.report.markdown import MARKER
from tests.choosing import thorough_but
from tests.conftest import ROOT

MADE = runpy.run_path(str(ROOT / "reports" / "pull_requests.py"))
KEPT = (ROOT / "reports" / "pull_requests.md").read_text()


def test_there_is_one_of_each_framework_and_each_is_kept() -> None:
    assert list(MADE["CHANGES"]) == ["slime", "miles", "skyrl", "verl"]
    assert KEPT.count(MARKER) == 4
    for name, change in MADE["CHANGES"].items():
        assert f"## {name}: {change.told}\n" in KEPT and change.right in change.source


@pytest.mark.parametrize("name", thorough_but(MADE["CHANGES"], lambda _: False, ids=str, each=8))
@pytest.mark.exhaustive
def test_the_comment_is_the_one_that_is_kept(name: str, tmp_path: Path) -> None:
    said, kept = MADE["told"](name, tmp_path), KEPT.partition(f"## {name}:")[2]
    assert re.findall("^### .*$", said, re.M) == re.findall("^### .*$", kept, re.M)[:1]
