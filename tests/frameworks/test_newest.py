"""The newest release of every package of the matrix still runs, and gives what the last one gave.

Run weekly, and by ``pytest -m newest``: a failure is news of a framework, not of a change here.
"""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from reports.frameworks import HERE, Target, key, ran, source, targets
from tests.frameworks.wheels import newest, pythons

PACKAGED = [target for target in targets() if target.package]


def last(target: Target) -> Version:
    return max(map(Version, target.versions))


LATEST = [
    target
    for target in PACKAGED
    if last(target) == max(last(t) for t in PACKAGED if t.framework == target.framework)
]
"""Those of the last version of each framework: a target of older ones is called in their way."""


@pytest.mark.newest
@pytest.mark.parametrize("target", LATEST, ids=lambda t: f"{t.framework}-{t.function}")
def test_the_newest_release_gives_what_the_last_one_gave(
    target: Target, pytestconfig: pytest.Config
) -> None:
    folder = Path(pytestconfig.cache.mkdir("wheels"))
    version, release = newest(folder, target.package)
    if not pythons(release).contains(platform.python_version()):
        pytest.skip(f"{target.package} {version} requires Python {pythons(release)}")
    where = source(target, version, folder)
    assert where is not None
    cells = ran(replace(target, versions=(version,)), where)
    stopped = {cell.mode: cell.why for cell in cells if cell.outcome == "not run"}
    assert not stopped, f"{target.package} {version} does not run: {stopped}"
    store = json.loads((HERE / "frameworks.json").read_text(encoding="utf-8"))
    if (row := store.get(key(target, target.versions[-1]))) is not None:
        before = {cell["mode"]: sorted(cell["codes"]) for cell in row["cells"]}
        assert {cell.mode: sorted(cell.codes) for cell in cells} == before, f"since {version}"


def test_every_target_can_be_called_and_says_where_its_code_is() -> None:
    for target in targets():
        assert bool(target.package) != bool(target.repository), target
        assert bool(target.convention) != bool(target.adapter), target
        calls = target.convention in ("validation", "dealer")  # of no mode
        assert target.versions and target.asked and bool(target.modes) != calls, target


def test_adapters_are_short() -> None:
    for path in (HERE / "adapters").glob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        left_out = ('"""', "import ", "from ")
        code = [line for line in lines if line.strip() and not line.startswith(left_out)]
        assert len(code) <= 15, path
