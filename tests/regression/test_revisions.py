"""``compare --revisions``: two states of a repository, each on its own files, and nothing stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from aggverify.errors import InputError
from aggverify.model import load, render
from aggverify.regression import revisions
from aggverify.regression.git_worktrees import Tree, checked_out, uncommitted
from aggverify.regression.model import Kind
from aggverify.regression.plan import ComparisonPlan
from aggverify.regression.revisions import compared
from tests import waiting
from tests.choosing import LATER
from tests.conftest import ROOT, Cli
from tests.regression.documents import pairs
from tests.regression.repository import Repository, repository
from tests.regression.test_again import RIGHT

HELPED = RIGHT.replace("import torch", "import torch\nfrom rl.helper import ONE").replace(
    "kept.sum()", "ONE * kept.sum()"
)
FILES: dict[str, str | None] = {
    "rl/__init__.py": "",
    "rl/helper.py": "ONE = 1\n",
    "rl/r.py": HELPED,
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """With a branch whose helper doubles; afterwards nothing is left of any tree."""
    made = repository(tmp_path / "repo", FILES)
    made.branch("doubled", {"rl/helper.py": "ONE = 2\n"})
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.chdir(made.path)
    yield made
    assert list(scratch.iterdir()) == [], "temporary files"
    assert len(made.git("worktree", "list").splitlines()) == 1
    assert made.git("status", "--short") == ""


def test_each_tree_is_a_state_of_its_own_and_goes(own: Repository) -> None:
    hook = own.path / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    (own.path / "rl" / "helper.py").write_text("ONE = 3\n")
    os.chdir(own.path / "rl")
    with checked_out("main", "doubled", "..") as trees:
        texts = [(tree.here / "helper.py").read_text() for tree in trees]
        assert texts == ["ONE = 1\n", "ONE = 2\n", "ONE = 3\n"]
        assert not (trees[0].root / "ran").exists(), "no hook of the repository runs"
        paths = trees[1].environment()["PYTHONPATH"].split(os.pathsep)
        assert paths[0] == str(trees[1].root)
        commit = own.git("rev-parse", "--short=7", "doubled")
        assert [tree.name for tree in trees] == [trees[0].name, f"doubled ({commit})", ".."]
    own.git("checkout", "-q", "--", ".")


def test_what_is_installed_from_the_checkout_is_that_of_the_tree(
    own: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(own.path / "rl"), "/elsewhere"]))
    with checked_out("main") as (tree,):
        paths = tree.environment()["PYTHONPATH"].split(os.pathsep)
        assert paths == [str(tree.root), str(tree.root / "rl"), "/elsewhere"]


def test_an_editable_install_of_a_folder_below_is_that_of_the_tree(
    own: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a line of a .pth file, or by setuptools' finder."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    finder = ModuleType("__editable___rl_finder")
    finder.MAPPING = {"rl": str(own.path / "rl"), "other": "/elsewhere/other"}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, finder.__name__, finder)
    monkeypatch.setattr("sys.path", [*sys.path, str(own.path / "rl"), str(own.path / ".venv")])
    with checked_out("main") as (tree,):
        paths = tree.environment()["PYTHONPATH"].split(os.pathsep)
        assert paths == [str(tree.root), str(tree.root / "rl")]


def test_folders_outside_of_any_checkout_are_compared_as_they_are(
    own: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "r.py").write_text(name)
    assert not uncommitted("./old", "./new")
    with checked_out("./old", str(tmp_path / "new")) as trees:
        assert [(tree.here / "r.py").read_text() for tree in trees] == ["old", "new"]
        paths = trees[0].environment()["PYTHONPATH"].split(os.pathsep)
        assert paths == [str(tmp_path / "old")]


def test_of_another_clone_the_same_part_is_compared(own: Repository, tmp_path: Path) -> None:
    other = repository(tmp_path / "other", FILES)
    os.chdir(own.path / "rl")
    with checked_out("main", str(other.path), f"{other.path}/rl") as (_, whole, part):
        assert (whole.root, whole.here) == (other.path, other.path / "rl")
        assert (part.root, part.here) == (other.path, other.path / "rl")


def test_a_folder_below_a_checkout_is_refused(own: Repository) -> None:
    """Next to it lies a file of the same name, which is not the one that is meant."""
    (own.path / "r.py").write_text(RIGHT)
    refused = pytest.raises(InputError, match=r"^\./rl lies in the checkout .*--against OLD")
    with refused, checked_out("main", "./rl"):
        pass
    (own.path / "r.py").unlink()


def test_changes_that_are_in_no_revision_are_told_of(own: Repository) -> None:
    assert not uncommitted("main", "HEAD")
    (own.path / "rl" / "helper.py").write_text("ONE = 3\n")
    assert uncommitted("doubled", "HEAD")
    assert not uncommitted("doubled", ".")
    own.git("checkout", "-q", "--", ".")


def test_what_is_no_revision_is_refused(own: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    for revision in ("nowhere", "--force", "main:rl"):
        with pytest.raises(InputError, match="git rev-parse: "), checked_out("main", revision):
            pass
    monkeypatch.chdir(own.path.parent)
    with pytest.raises(InputError, match="not a git repository"), checked_out("main", "main"):
        pass


def test_both_are_checked_with_one_plan_and_on_each_others_cases(
    own: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    sides = dict(zip(("main", "doubled"), pairs()[Kind.NEW_FAILURE](), strict=True))

    def run(command: list[str], tree: Tree, errors: object) -> int:
        asked.append(command[4:])
        given = command[command.index("--report-dir") + 1]
        (Path(given) / "verdict.json").write_text(render(sides[tree.name.split()[0]]))
        return 1

    monkeypatch.setattr(revisions, "_run", run)
    plan = ComparisonPlan(("rl/r.py",), ("--mode", "token_mean"))
    told: list[str] = []
    keep = own.path / ".aggverify"
    found = compared("main", "doubled", plan, strict=False, keep=keep, progress=told.append)
    assert found.exit == 1 and found.base.name.startswith("main (")
    [first, second, third] = asked
    assert all(a[:3] == ["check", "rl/r.py", "--mode"] for a in asked)
    assert "--replay-from" not in first
    assert second[-2] == "--replay-from" and second[-1].endswith("base0/verdict.json")
    assert [third[-4], third[-2]] == ["--replay-from", "--replay-into"]
    assert third[-3].endswith("head0/verdict.json") and third[-1].endswith("base0/verdict.json")
    [change] = found.changes
    assert change.finding and (keep / "cases" / f"{change.finding.id}.json").exists()
    assert "--report-dir" not in change.finding.replay
    with pytest.raises(InputError, match=r"gone.py is in neither main"):
        compared(
            "main",
            "doubled",
            ComparisonPlan(("gone.py",)),
            strict=False,
            keep=keep,
            progress=told.append,
        )
    monkeypatch.setattr(revisions, "_run", lambda *_: 2)
    with pytest.raises(InputError, match=r"rl/r.py in main \(\w+\): exit code 2"):
        compared("main", "doubled", plan, strict=False, keep=keep, progress=told.append)


@pytest.mark.parametrize(
    ("base", "head", "exit_code", "kinds"),
    [
        ("main", "begun", 0, {Kind.UNCHANGED}),
        ("main", "begun badly", 1, {Kind.NEW_FAILURE}),
        ("begun", "main", 1, {Kind.COVERAGE_LOST}),
    ],
)
def test_a_side_without_the_targets_verifies_nothing(
    own: Repository,
    monkeypatch: pytest.MonkeyPatch,
    base: str,
    head: str,
    exit_code: int,
    kinds: set[Kind],
) -> None:
    """The pull request that begins with a check is judged by itself."""
    own.branch("begun", {"rl/n.py": HELPED})
    green, red = pairs()[Kind.NEW_FAILURE]()
    made = red if "badly" in head else green

    def run(command: list[str], tree: Tree, errors: object) -> int:
        given = command[command.index("--report-dir") + 1]
        (Path(given) / "verdict.json").write_text(render(made))
        return made.exit

    monkeypatch.setattr(revisions, "_run", run)
    plan, keep = ComparisonPlan(("rl/n.py",)), own.path / ".aggverify"
    sides = base, head.split()[0]
    found = compared(*sides, plan, strict=False, keep=keep, progress=print, documents=keep)
    assert (found.exit, {change.kind for change in found.changes}) == (exit_code, kinds)
    documents = [load(keep / f"{side}.json") for side in ("base", "head")]
    assert sorted(len(document.verdicts) for document in documents) == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.json", "b.json", "r.py"], "r.py: two documents are compared as they are"),
        (["a.json", "b.json", "--seed", "3"], "--seed: two documents are compared as they are"),
        (
            ["old.py", "new.py", "--seed", "3"],
            "no verdict documents: aggverify check new.py",
        ),
        (["main", "HEAD", "--revisions"], "say what to check"),
        (["a.json", "b.json", "--format", "htm"], "did you mean 'html'"),
    ],
)
def test_what_cannot_be_meant_is_said(arguments: list[str], message: str, cli: Cli) -> None:
    ran = cli("compare", *arguments)
    assert ran.code == 2 and message in ran.err


@pytest.mark.exhaustive
def test_from_two_branches_to_the_report(own: Repository, shell: Cli) -> None:
    plan = ("rl/r.py", "--profile", "quick", "--max-examples", "5", "--max-time", "900")
    ran = subprocess.run(
        [sys.executable, "-m", "aggverify", "compare", "main", "doubled", "--revisions", *plan],
        cwd=own.path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1, ran
    last = ran.stdout.splitlines()[-1]
    assert last.startswith("Merging this makes gradients 2 times too large in token_mean")
    [case] = (own.path / ".aggverify" / "cases").iterdir()
    assert f"aggverify replay {case.stem} rl/r.py" in ran.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("number", [LATER(signal.SIGINT), signal.SIGTERM])
def test_nothing_stays_when_it_is_stopped(own: Repository, number: signal.Signals) -> None:
    own.branch("endless", {"rl/helper.py": "open('began', 'w')\nwhile True: pass\n"})
    running = subprocess.Popen(
        [sys.executable, "-m", "aggverify", "compare", "main", "endless", "--revisions", "rl/r.py",
         "--profile", "quick", "--max-examples", "1"],
        cwd=own.path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    scratch = Path(os.environ["TMPDIR"])
    waiting.wait_until(lambda: list(scratch.rglob("began")) or running.poll() is not None)
    running.send_signal(number)
    _, told = running.communicate()
    assert running.returncode == 130, told
