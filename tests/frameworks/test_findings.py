"""Each defect of ``docs/findings`` reproduces in plain torch, with the framework's own function."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.frameworks.findings import PAGES, Page, pages
from tests.frameworks.wheels import unpacked

SECTIONS = ["Expected", "Actual", "Consequence", "Script", "Suggested test"]
KNOWN = list(pages())


def test_every_page_has_a_script_and_says_what_a_maintainer_needs() -> None:
    written = {path.stem for path in PAGES.glob("*.md")} - {"index"}
    assert {page.name for page in KNOWN} == written
    for page in KNOWN:
        assert re.findall(r"^## (.+)$", page.text, re.MULTILINE) == SECTIONS, page.name
        assert compile(page.script, page.name, "exec") and page.printed


RELEASED = [page for page in KNOWN if page.package]


@pytest.mark.network
@pytest.mark.parametrize("page", RELEASED, ids=lambda page: page.name)
def test_it_reproduces(page: Page, pytestconfig: pytest.Config, tmp_path: Path) -> None:
    wheels = Path(pytestconfig.cache.mkdir("wheels"))
    assert page.run(unpacked(wheels, page.package, page.version), tmp_path) == page.printed
    if page.fixed:
        mended = page.run(unpacked(wheels, page.package, page.fixed), tmp_path)
        pairs = (line.split(": ")[1].split(" for ") for line in mended.splitlines())
        assert all(seen == due for seen, due in pairs)
