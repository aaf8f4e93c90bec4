"""What would be uploaded: built, checked by twine, installed and used; and README's command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from aggverify import __version__
from tests.conftest import EXAMPLES, ROOT
from tests.packaging.conftest import Installed

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}


def run(*command: str | Path, cwd: Path) -> str:
    """What it prints; it must end with 0."""
    ran = subprocess.run(command, cwd=cwd, env=CLEAN, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.thorough
def test_the_wheel_is_checked_installed_and_used(tmp_path: Path) -> None:
    for tool in ("build", "twine"):
        pytest.importorskip(tool, reason="pip install -e '.[docs]'")
    built = tmp_path / "dist"
    python = Path(sys.executable)
    run(python, "-m", "build", "--no-isolation", "--outdir", built, ROOT, cwd=tmp_path)
    [wheel], [source] = built.glob("*.whl"), built.glob("*.tar.gz")
    assert wheel.name == f"aggverify-{__version__}-py3-none-any.whl"
    assert source.name == f"aggverify-{__version__}.tar.gz"
    assert (
        run(python, "-m", "twine", "check", "--strict", wheel, source, cwd=tmp_path).count("PASSED")
        == 2
    )

    installed = Installed.make(tmp_path / "venv")
    venv.EnvBuilder(with_pip=True, symlinks=True).create(tmp_path / "venv")
    pip = (installed.python, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "install", "--no-index", "--no-deps", wheel, cwd=tmp_path)
    command = installed.python.with_name("aggverify")
    assert run(command, "--version", cwd=tmp_path).startswith(f"aggverify {__version__}\n")
    shutil.copy(EXAMPLES / "native" / "sum" / "token_mean.py", tmp_path / "right.py")
    options = ("--profile", "quick", "--world", "2", "--report", "json,html")
    run(command, "check", "right.py", *options, cwd=tmp_path)
    assert (tmp_path / ".aggverify" / "verdict.json").is_file()
    where = "import aggverify; print(aggverify.__file__)"
    assert Path(run(installed.python, "-c", where, cwd=tmp_path).strip()).is_relative_to(
        installed.site
    )


@pytest.mark.network
@pytest.mark.exhaustive  # installs torch once more
def test_readmes_run_command_in_a_fresh_clone(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [command] = re.findall(r"<!-- run command -->\n```\n(.+)\n```\n", readme)
    clone = tmp_path / "clone"
    run("git", "clone", "--quiet", ROOT, clone, cwd=tmp_path)
    run("bash", "-c", command, cwd=clone)


def test_a_fragment_becomes_an_entry_of_the_next_version(tmp_path: Path) -> None:
    pytest.importorskip("towncrier", reason="pip install -e '.[docs]'")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "44.added.md").write_text("A page says more.\n")
    towncrier = (Path(sys.executable), "-m", "towncrier", "build", "--draft")
    draft = run(*towncrier, "--version", "0.2.0", cwd=tmp_path)
    assert "## 0.2.0\n\n### Added\n\n- A page says more. (#44)\n" in draft


def test_the_changelog_has_ten_lines_for_0_1_0() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = text.partition("## 0.1.0\n")[2].partition("\n## ")[0]
    assert len(first.strip().splitlines()) == 10
