"""``aggverify.oracles`` and somebody else's ``oracles`` live side by side, however installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import EXAMPLES, ROOT
from tests.packaging.conftest import Installed, build

CANDIDATE = EXAMPLES / "native" / "sum" / "token_mean.py"
OPTIONS = ("--profile", "quick", "--max-examples", "1", "--world", "2")
BOTH = """
import aggverify.oracles
import oracles
import oracles.modes
assert oracles.WHOSE == oracles.modes.WHOSE == "theirs", oracles
assert aggverify.oracles.MODES
"""
PARENT = (
    BOTH
    + """
import sys
from aggverify.cli import main
print(aggverify.oracles.__file__, flush=True)
main()
"""
)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder with a package ``oracles`` that has nothing to do with ours."""
    package = tmp_path / "theirs" / "oracles"
    package.mkdir(parents=True)
    for name in ("__init__.py", "modes.py"):
        (package / name).write_text('WHOSE = "theirs"\n')
    return package.parent


def both_are_found(python: Path | str, cwd: Path, theirs: Path) -> Path:
    """Import both in the parent and in ranks; where ours was found."""
    (cwd_file := theirs / "candidate.py").write_text(BOTH + CANDIDATE.read_text())
    ran = subprocess.run(
        [python, "-c", PARENT, "check", cwd_file, "--report-dir", theirs / "out", *OPTIONS],
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        | {"PYTHONPATH": str(theirs)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "its token_mean weight" in ran.stdout
    return Path(ran.stdout.splitlines()[0])


@pytest.mark.thorough
def test_a_wheel(wheel: Path, theirs: Path, tmp_path: Path) -> None:
    installed = Installed.make(tmp_path / "venv")
    installed.add(wheel)
    found = both_are_found(installed.python, tmp_path, theirs)
    assert found == installed.site / "aggverify" / "oracles" / "__init__.py"


@pytest.mark.thorough
@pytest.mark.parametrize("inside", [False, True], ids=["elsewhere", "in the checkout"])
def test_an_editable_install(theirs: Path, tmp_path: Path, inside: bool) -> None:
    copy = tmp_path / "checkout"
    for folder in ("aggverify", "oracles"):
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    installed = Installed.make(tmp_path / "venv")
    installed.add(build("editable", copy, tmp_path / "built"))
    found = both_are_found(installed.python, copy if inside else tmp_path, theirs)
    assert found == copy / "aggverify" / "oracles" / "__init__.py"


@pytest.mark.thorough
def test_the_checkout_as_working_directory(theirs: Path) -> None:
    found = both_are_found(sys.executable, ROOT, theirs)
    assert found.parent == ROOT / "aggverify" / "oracles"


def test_ours_is_not_there_under_the_bare_name() -> None:
    code = "import oracles"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "No module named 'oracles'; it is aggverify.oracles" in ran.stderr


def test_theirs_is_found_behind_the_checkout(theirs: Path) -> None:
    code = f"import sys; sys.path[:] = ['', *sys.path[1:], {str(theirs)!r}]\n{BOTH}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
