"""The newest release of every package of the matrix still runs, and gives what the last one gave.

Run weekly, and by ``pytest -m newest``: a failure is news of a framework, not of a change here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reports.frameworks import HERE, Source, Target, key, ran, targets
from tests.frameworks.wheels import newest

PACKAGED = [target for target in targets() if target.package]
LATEST = list({(t.framework, t.function, t.options): t for t in PACKAGED}.values())
"""Of each function the target of its last versions."""


@pytest.mark.newest
@pytest.mark.parametrize("target", LATEST, ids=lambda t: f"{t.framework}-{t.function}")
def test_the_newest_release_gives_what_the_last_one_gave(
    target: Target, pytestconfig: pytest.Config
) -> None:
    version, folder = newest(Path(pytestconfig.cache.mkdir("wheels")), target.package)
    cells = ran(replace(target, versions=(version,)), Source(version, folder / target.folder))
    stopped = {cell.mode: cell.why for cell in cells if cell.outcome == "not run"}
    assert not stopped, f"{target.package} {version} does not run: {stopped}"
    store = json.loads((HERE / "frameworks.json").read_text(encoding="utf-8"))
    if (row := store.get(key(target, target.versions[-1]))) is not None:
        before = {cell["mode"]: cell["codes"] for cell in row["cells"]}
        assert {cell.mode: list(cell.codes) for cell in cells} == before, f"since {version}"


def test_every_target_can_be_called_and_says_where_its_code_is() -> None:
    for target in targets():
        assert bool(target.package) != bool(target.repository), target
        assert bool(target.convention) != bool(target.adapter), target
        assert target.versions and target.modes and target.asked


def test_adapters_are_short() -> None:
    for path in (HERE / "adapters").glob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        left_out = ('"""', "import ", "from ")
        code = [line for line in lines if line.strip() and not line.startswith(left_out)]
        assert len(code) <= 15, path
