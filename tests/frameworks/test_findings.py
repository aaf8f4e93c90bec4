"""Each defect of ``docs/findings`` reproduces in plain torch, with the framework's own function."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.frameworks import findings, wheels
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


def test_what_a_script_needs_does_not_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slime reads a configuration with yaml, which is nothing where it stands in."""
    for folder, file, text in (
        ("pages", "reads.md", "```python\nimport yaml\nprint(yaml.HERE)\n```\n\n```text\n1\n```\n"),
        ("needed/yaml", "__init__.py", "HERE = 1\n"),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / file).write_text(text)
    monkeypatch.setattr(findings, "PAGES", tmp_path / "pages")
    monkeypatch.setattr(wheels, "installed", lambda folder, *packages: tmp_path / "needed")
    page = Page("reads", needs=("pyyaml",))
    assert page.run(tmp_path, tmp_path, tmp_path) == page.printed
    assert Page("reads").run(tmp_path, tmp_path, tmp_path) != page.printed


RELEASED = [page for page in KNOWN if page.package]


@pytest.mark.network
@pytest.mark.parametrize("page", RELEASED, ids=lambda page: page.name)
def test_it_reproduces(page: Page, pytestconfig: pytest.Config, tmp_path: Path) -> None:
    folder = Path(pytestconfig.cache.mkdir("wheels"))
    assert page.run(unpacked(folder, page.package, page.version), tmp_path, folder) == page.printed
    if page.fixed:
        mended = page.run(unpacked(folder, page.package, page.fixed), tmp_path, folder)
        pairs = (line.split(": ")[1].split(" for ") for line in mended.splitlines())
        assert all(seen == due for seen, due in pairs)
