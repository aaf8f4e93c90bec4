"""The matrix is what its record says, and calls nothing a defect without a script that shows it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from aggverify.conventions import CONVENTIONS
from aggverify.conventions.run_against import run_against
from reports import frameworks_page
from reports.frameworks import HERE, Store, Target, key, read, targets
from tests.frameworks.findings import pages
from tests.frameworks.test_newest import LATEST

STORE = read(HERE / "frameworks.json")


def rows(target: Target, store: Store = STORE) -> list[dict[str, object]]:
    """Those of a target: of each release, or of the one checkout."""
    where, function = target.package or target.repository, f"{target.module}:{target.function}"
    return [
        row
        for name, row in store.items()
        if (row["source"], row["function"]) == (where, function)
        and name == key(target, row["version"])
        and (not target.package or row["version"] in target.versions)
    ]


def test_every_target_has_rows_that_were_called_as_it_is_and_there_are_no_others() -> None:
    seen = []
    for target in targets():
        found = rows(target)
        assert len(found) >= len(target.versions), f"{target.framework}: reports/frameworks.py"
        seen += [id(row) for row in found if row["command"] == " ".join(target.called)]
    assert {*map(id, STORE.values())} == {*seen}
    assert all(cell["outcome"] != "not run" for row in STORE.values() for cell in row["cells"])


def test_the_report_and_both_heat_maps_are_what_the_record_says(tmp_path: Path) -> None:
    shutil.copy(HERE / "frameworks.toml", tmp_path)
    frameworks_page.write(STORE, tmp_path)
    for name in ("frameworks.md", "frameworks-light.svg", "frameworks-dark.svg"):
        assert (tmp_path / name).read_text() == (HERE / name).read_text(), name


def test_a_defect_has_a_page_whose_script_shows_it_and_everything_else_a_citation() -> None:
    scripts = {f"docs/findings/{page.name}.md" for page in pages()}
    every = frameworks_page.knowledge(HERE)
    assert {one.see for one in every if one.kind == "defect"} == scripts
    for one in every:
        assert one.kind in ("defect", "mended", "reported", "choice", "edge"), one
        assert one.see or one.kind == "edge", one
        assert one.versions or one.kind != "mended", one
        assert re.search(r"#\d+, open$", one.see) or one.kind != "reported", one
        shown = [c for row in STORE.values() for c in row["cells"] if one.of(row, c)]
        assert shown, f"{one}: no row shows it"


OF_A_PERSON = {
    "tinker": "its client is called by an adapter, with a loss that is no part of it",
    "hf-loss-func": "the function is a person's own, which transformers calls",
}
"""Conventions of packages whose newest release is called in another way, and which."""


def test_every_convention_of_a_package_is_run_against_its_newest_release() -> None:
    released = {target.package for target in LATEST}
    mine = {
        name
        for name, how in CONVENTIONS.items()
        for one in run_against(how)
        if one.name in released
    }
    assert mine - {target.convention for target in LATEST} == {*OF_A_PERSON}
