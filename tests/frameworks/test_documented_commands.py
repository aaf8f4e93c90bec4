"""Every command of ``docs/frameworks`` parses, and has a row of what came of it on real code."""

from __future__ import annotations

import shlex

from reports.documented import BLOCK, HERE, PAGES, code, documented, read, told
from tests.conftest import ROOT
from tests.quality.command_lines import parse

ROWS = [f"{page} {command}" for page, command in documented()]


def test_every_command_parses_and_has_its_code() -> None:
    for page, command in documented():
        parse(command)
        _, _, target, *options = shlex.split(command)
        row = code(target, options)
        own = [found[2] for found in BLOCK.finditer((PAGES / page).read_text(encoding="utf-8"))]
        assert row or target.partition(":")[0] in own, f"{page}: nothing stands for {target}"
        assert not row or {"checkout", "package", "example", "why"} & {*row}, target
        if "example" in row:
            assert (ROOT / row["example"].partition(":")[0]).exists(), row


def test_every_command_has_a_row_in_the_record_and_no_other_has() -> None:
    store = read()
    assert len(ROWS) > 40
    assert set(store) == set(ROWS), "python reports/documented.py --sources DIR"
    record = (HERE / "documented.md").read_text(encoding="utf-8")
    assert record == "\n".join(told(store)) + "\n"
    assert all(row["on"] == "not run" or row["exit"] in (0, 1) for row in store.values()), store


def test_the_index_links_to_the_record() -> None:
    assert "](../../reports/documented.md)" in (PAGES / "index.md").read_text(encoding="utf-8")


def test_the_pages_of_slime_and_miles_show_the_adapter_of_their_validator_whole() -> None:
    for name in ("slime", "miles"):
        adapter = f"examples/validation/{name}.py"
        text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        code = (ROOT / adapter).read_text(encoding="utf-8")
        assert f"```python\n{code}```\n" in text and f"--adapter {adapter}" in text
