"""Workflows in a repository of somebody's own, from the first push to a mended pull request: what
``aggverify new`` writes, and the action as its page shows it. Their steps run here."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aggverify import __version__
from aggverify.scaffold.origin import requirement
from tests.conftest import ROOT
from tests.regression.repository import Repository, repository
from tests.regression.runner import Runner
from tests.regression.test_action import CHECKS

LOSS = """
import tinyops


def policy_loss(losses, mask, num_tokens):
    return tinyops.masked_sum(losses, mask) / max(num_tokens, 1)
"""
WRONG = LOSS.replace("max(num_tokens, 1)", "max(int(mask.sum()), 1)")
THEIRS = "def masked_sum(x, mask):\n    return x.where(mask.bool(), 0.0).sum()\n"
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "my-pkg"
version = "1"
dependencies = ["tinyops"]
[tool.hatch.build.targets.wheel]
packages = ["my_pkg"]
[tool.aggverify]
max_examples = 3
world = 2
profile = "quick"
"""
OPTIONS = ("--mode", "token_mean", "--engine", "sum")
FIRST = "0" * 40
"""What GitHub has as the commit before the first push of a branch."""


def wheel(folder: Path) -> None:
    """A package that the person's project needs, and nothing here has."""
    about = "tinyops-1.dist-info"
    parts = {
        "tinyops.py": THEIRS,
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: tinyops\nVersion: 1\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": f"tinyops.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n",
    }
    with zipfile.ZipFile(folder / "tinyops-1-py3-none-any.whl", "w") as made:
        for name, content in parts.items():
            made.writestr(name, content)


@dataclass(frozen=True, slots=True)
class Forge:
    """The person's repository, its bare copy where GitHub has it, and the index of packages."""

    mine: Repository
    bare: Path
    folder: Path

    def push(self, files: dict[str, str | None], branch: str = "main") -> tuple[str, str]:
        """A commit of these files; the commits before and after."""
        before = self.mine.git("rev-parse", "HEAD") if self._has_commits() else FIRST
        self.mine.commit(files)
        self.mine.git("push", "-q", "-f", str(self.bare), f"HEAD:{branch}")
        return before, self.mine.git("rev-parse", "HEAD")

    def _has_commits(self) -> bool:
        return bool(self.mine.git("rev-list", "--all", "-n", "1"))

    def runs(self, workflow: str, event: str, commit: str, more: dict[str, Any]) -> Runner:
        """A run of it for an event at a commit, with the checkout that GitHub makes; not begun."""
        folder = self.folder / f"run{len(list(self.folder.glob('run*')))}"
        checkout = Repository(folder / "checkout")
        checkout.path.mkdir(parents=True)
        checkout.git("init", "-q")
        checkout.git("remote", "add", "origin", self.bare.as_uri())
        checkout.git("fetch", "-q", "--no-tags", "--depth=1", "origin", commit)
        checkout.git("checkout", "-q", "FETCH_HEAD")
        github = {"event_name": event, "event": more, "sha": commit}
        return Runner(checkout.path, folder / "own", python(folder, self.folder), github)

    def pull_request(self, workflow: str, files: dict[str, str | None]) -> Runner:
        """Of a branch off main with these files: GitHub checks out what merging it gives."""
        base = self.mine.git("rev-parse", "main")
        self.mine.git("checkout", "-q", "-B", "patch", "main")
        self.mine.commit(files)
        self.mine.git("checkout", "-q", "--detach", "main")
        self.mine.git("merge", "-q", "--no-ff", "-m", "merged", "patch")
        merged = self.mine.git("rev-parse", "HEAD")
        self.mine.git("push", "-q", "-f", str(self.bare), "HEAD:refs/pull/1/merge")
        self.mine.git("checkout", "-q", "main")
        pull = {"pull_request": {"number": 1, "base": {"sha": base}}}
        return self.runs(workflow, "pull_request", merged, pull)


def python(folder: Path, index: Path) -> dict[str, str]:
    """The environment of a job whose Python has neither this project nor the person's packages."""
    venv.create(folder / "python", symlinks=True, with_pip=True)
    [site] = (folder / "python" / "lib").glob("python*/site-packages")
    for path in (Path(p) for p in sys.path if p.endswith(("site-packages", "dist-packages"))):
        for found in path.iterdir():
            name = found.name.lower()
            ours = "aggverify" in name or name.endswith(".pth") or name.startswith("pip")
            if not ours and not (site / found.name).exists():
                (site / found.name).symlink_to(found)
    given = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    return given | {
        "PATH": f"{folder / 'python' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(index),
        "PIP_NO_BUILD_ISOLATION": "false",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_CONFIG_FILE": os.devnull,
    }


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This project's wheel, and a package of somebody else's."""
    pytest.importorskip("hatchling")
    pytest.importorskip("editables")
    folder = tmp_path_factory.mktemp("index")
    wheel(folder)
    source = folder / "theirs"
    source.mkdir()
    (source / "tinyops.py").write_text(THEIRS)
    own = python(folder, folder)
    command = ["python", "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(command, env=own, check=True, capture_output=True)
    return folder


@pytest.fixture
def forge(index: Path, tmp_path: Path) -> Forge:
    """The person's repository before its first push, with what ``new`` wrote."""
    (tmp_path / "mine").mkdir()
    mine = Repository(tmp_path / "mine")
    mine.git("init", "-q", "-b", "main")
    bare = repository(tmp_path / "bare", {}).path / ".git"
    for key in ("uploadpack.allowAnySHA1InWant", "receive.denyCurrentBranch"):
        value = "true" if "upload" in key else "ignore"
        Repository(bare.parent).git("config", key, value)
    for name, content in {
        ".gitignore": ".aggverify/\n__pycache__/\n",
        "pyproject.toml": PROJECT,
        "my_pkg/__init__.py": "",
        "my_pkg/loss.py": LOSS,
    }.items():
        path = mine.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    for file in index.glob("*.whl"):
        (tmp_path / file.name).symlink_to(file)
    paths = os.pathsep.join([str(ROOT), str(index / "theirs")])
    done = subprocess.run(
        [sys.executable, "-m", "aggverify", "new", "my_pkg/loss.py", *OPTIONS],
        cwd=mine.path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done
    return Forge(mine, bare, tmp_path)


@pytest.mark.thorough
def test_what_new_writes_runs_where_it_was_written(forge: Forge) -> None:
    [file] = (forge.mine.path / ".github" / "workflows").iterdir()
    # From an index here, whatever this checkout was cloned from.
    workflow = file.read_text().replace(requirement(), f"aggverify=={__version__}")
    _, commit = forge.push({file.relative_to(forge.mine.path).as_posix(): workflow})
    first = forge.runs(workflow, "push", commit, {"before": FIRST})
    assert first.job(workflow), first.printed
    assert "PASS" in first.printed
    [files] = first.uploads.values()
    assert {"report.html", "summary.md", "verdict.json"} <= set(files)
    red = forge.pull_request(workflow, {"my_pkg/loss.py": WRONG})
    assert not red.job(workflow), red.printed
    adapter = "my_pkg/aggverify_policy_loss.py"
    lines = (forge.mine.path / adapter).read_text().splitlines()
    at = next(n for n, line in enumerate(lines, 1) if line.startswith("def reduce("))
    assert f"::error file={adapter},line={at},title=AGV202 " in red.printed
    assert "AGV2" in (red.own / "summary.md").read_text() and red.uploads
    mended = forge.pull_request(workflow, {"my_pkg/loss.py": f"{LOSS}# a comment\n"})
    assert mended.job(workflow), mended.printed


ACTION = CHECKS.replace("my_package/loss.py", "my_pkg/aggverify_policy_loss.py")
ACTION = ACTION.replace("modes: token_mean", "engine: sum\n          python: none")
"""As its page has it, with the job's own Python."""


@pytest.mark.exhaustive
def test_every_push_is_compared_with_the_one_before(forge: Forge) -> None:
    assert "install: pip install -e ." in ACTION
    _, commit = forge.push({})
    first = forge.runs(ACTION, "push", commit, {"before": FIRST})
    assert first.job(ACTION), first.printed
    assert [*first.outputs.values()] == [
        {"exit-code": "0", "verdict": "aggverify-documents/verdict.json"}
    ]
    assert "actions/setup-python@v5" not in first.ran
    before, commit = forge.push({"my_pkg/loss.py": WRONG})
    second = forge.runs(ACTION, "push", commit, {"before": before})
    assert not second.job(ACTION), second.printed
    [told], [(name, files)] = second.outputs.values(), second.uploads.items()
    assert told == {"exit-code": "1", "verdict": "aggverify-documents/head.json"}
    assert name.startswith("aggverify-compare-0-")
    assert files == ["base.json", "head.json", "report.html"]
    assert "new-failure" in (second.own / "summary.md").read_text()
    _, commit = forge.push({"my_pkg/loss.py": LOSS})
    third = forge.runs(ACTION, "push", commit, {"before": "e" * 40})  # a force push left it behind
    assert third.job(ACTION), third.printed
    assert f"origin has no {'e' * 40}" in third.printed
    assert "fixes AGV202" in (third.own / "summary.md").read_text()


@pytest.mark.exhaustive
def test_a_pull_request_that_begins_with_it_is_judged(forge: Forge) -> None:
    """Its base has nothing of what is compared; the next one has."""
    adapter = "my_pkg/aggverify_policy_loss.py"
    written = (forge.mine.path / adapter).read_text()
    forge.push({adapter: None})
    begun = forge.pull_request(ACTION, {adapter: written})
    assert begun.job(ACTION), begun.printed
    wrong = forge.pull_request(ACTION, {adapter: written, "my_pkg/loss.py": WRONG})
    assert not wrong.job(ACTION), wrong.printed
    [told] = wrong.outputs.values()
    assert told["exit-code"] == "1"
