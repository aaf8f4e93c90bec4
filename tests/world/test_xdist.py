"""A pool per xdist worker: every way to distribute, and a worker that dies in the middle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.choosing import LATER
from tests.world.conftest import HERE, Script

SUITE = f"""
import os
import pytest
from aggverify.world import Job, Pool, Replies

@pytest.fixture(scope="session")
def template():
    with Pool() as pool:
        yield pool.template("handlers:Play", {{}}, paths=[{HERE!r}])

@pytest.mark.parametrize("n", range(9))
@pytest.mark.xdist_group("one")
def test_sum(template, n):
    outcomes = template.run([Job(size, {{"act": "look_at_state"}}) for size in (1, 2, 2)])
    answers = [reply.data for o in outcomes for reply in o.replies]
    assert [answer["sum"] for answer in answers] == [1.0, 2.0, 2.0, 2.0, 2.0]
    assert {{answer["threads"] for answer in answers}} == {{1}}
    if n == 4 and "CRASH" in os.environ:
        os._exit(7)
"""


# With loadgroup, xdist 3.8 waits for ever after any worker's death, whatever the tests do.
@pytest.mark.parametrize(
    ("dist", "crash"),
    [
        LATER("load", 1),
        pytest.param("worksteal", 1, marks=pytest.mark.thorough),
        LATER("loadgroup", 0),
    ],
)
def test_distribution_and_restarts(
    script: Callable[[str], Script],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dist: str,
    crash: int,
) -> None:
    (tmp_path / "test_inner.py").write_text(SUITE)
    # Workers and their ranks share the processors: one thread each, whatever a shell says.
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    if crash:
        monkeypatch.setenv("CRASH", "1")
    arguments = ["-n", "2", "--dist", dist, "-q", "-p", "no:cacheprovider", "test_inner.py"]
    inner = script(f"import sys, pytest; sys.exit(pytest.main({arguments!r}))")
    assert inner.process.stdout is not None
    said = inner.process.stdout.read()
    assert inner.process.wait() == crash, said
    assert ("1 failed, 8 passed" if crash else "9 passed") in said, said
    assert ("crashed while running 'test_inner.py::test_sum[4]'" in said) == bool(crash)
    assert inner.left() == {}
    left = [path for path in inner.temporary.iterdir() if not path.name.startswith("pytest-of-")]
    assert left == [], "but what pytest itself tidies"
