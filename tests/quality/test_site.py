"""The documentation site: built without a warning, and with every part of the code in it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aggverify.checks import CHECKS
from aggverify.cli import commands
from aggverify.codes import CODES
from aggverify.conventions import CONVENTIONS
from aggverify.engines import ENGINES
from aggverify.execution.options import OPTIONS
from aggverify.oracles import LEGACY, MODES
from tests.conftest import ROOT

DOCS = ROOT / "docs"
BARE = {
    *("native", "trainer", "trainer-engine", "validation", "log-reducer", "dealer"),
    *("megatron-lm", "megatron-lm-two-output"),  # of pre-training: there is nothing around it
}


def test_every_convention_has_its_command_and_its_facts() -> None:
    pages = "\n".join(p.read_text(encoding="utf-8") for p in (DOCS / "frameworks").glob("*.md"))
    assert set(re.findall(r"--convention ([\w-]+)", pages)) == set(CONVENTIONS)
    listed = re.findall(r"^```\{generated\} convention (.+)$", pages, re.MULTILINE)
    assert {name for names in listed for name in names.split()} == set(CONVENTIONS)


def test_the_architecture_has_every_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    packages = {p.parent.name for p in (ROOT / "aggverify").glob("*/__init__.py")}
    listed = set(re.findall(r"^  (\w+)/ ", text, re.MULTILINE)) | {"oracles"}
    assert listed == packages


def test_every_verdict_says_what_stands_around_the_aggregation() -> None:
    silent = {
        how.name
        for how in CONVENTIONS.values()
        if not re.search("not exercised|no formula of .* is judged", "; ".join(how.notes))
    }
    assert silent == BARE


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as ``tox -e docs`` builds it, without a network where that can be taken away."""
    pytest.importorskip("sphinx", reason="pip install -e '.[docs]'")
    pytest.importorskip("furo", reason="pip install -e '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    alone = ["unshare", "--map-root-user", "--net"]
    can = shutil.which(alone[0]) and subprocess.run([*alone, "true"], capture_output=True)
    command = [*(alone if can and can.returncode == 0 else []), sys.executable, "-m", "sphinx"]
    command += ["-q", "-W", "--keep-going", "-b", "html"]
    built = subprocess.run(
        [*command, "-d", str(out / "doctrees"), str(DOCS), str(out / "html")],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert (built.returncode, built.stderr) == (0, "")
    return out / "html"


def page(site: Path, name: str) -> str:
    """Its text without tags."""
    return re.sub(r"<[^>]+>", "", (site / f"{name}.html").read_text(encoding="utf-8"))


@pytest.mark.thorough
def test_the_reference_names_every_part(site: Path) -> None:
    """Each list is read from the code while the site is built; here, that it arrived."""
    flags = [option.flag for option in OPTIONS]
    for name, wanted in {
        "reference/conventions": list(CONVENTIONS),
        "reference/engines": list(ENGINES),
        "reference/modes": [*MODES, LEGACY.name, *CONVENTIONS],
        "reference/checks": [check.name for check in CHECKS],
        "reference/options": [*flags, *(f"aggverify {command}" for command in commands.commands)],
        "codes/index": list(CODES),
    }.items():
        text = page(site, name)
        assert [what for what in wanted if what not in text] == [], name
    for code in CODES.values():
        assert code.title in page(site, f"codes/{code.code}").replace("’", "'"), code


@pytest.mark.thorough
def test_nothing_is_fetched_by_a_page(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert not re.search(r'(?:src|href)="https?://[^"]+\.(?:js|css|woff2?)', path.read_text())
