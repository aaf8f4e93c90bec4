"""The shell lines of the action and of the documented workflows, run here; and what they may do."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import yaml

from aggverify.model import render
from aggverify.regression.model import Kind
from aggverify.report.markdown import MARKER
from tests.conftest import ROOT
from tests.regression.documents import pairs
from tests.regression.repository import Repository, repository
from tests.regression.test_again import RIGHT, WRONG

ACTION = (ROOT / "action.yml").read_text()
BLOCKS = re.findall(
    r"```yaml\n(.*?)```", (ROOT / "docs" / "recipes" / "pull-requests.md").read_text(), re.S
)
CHECKS, COMMENTS, GITLAB = BLOCKS


def lines(text: str) -> list[str]:
    """The shell of every step."""
    return re.findall(r"^ +(?:- )?run: (.*)$", text, re.M)


@pytest.fixture
def clone(tmp_path: Path) -> Repository:
    """What a job has checked out: the merge commit of a pull request alone."""
    origin = repository(tmp_path / "origin", {"r.py": RIGHT})
    origin.branch("patch", {"r.py": WRONG})
    url = f"file://{origin.path}"
    origin.git("clone", "-q", "--depth=1", "--branch", "patch", url, str(tmp_path / "clone"))
    return Repository(tmp_path / "clone")


def shell(
    line: str, at: Path, aggverify: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the line as a runner does, with that for ``aggverify``."""
    tools = at.parent / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "aggverify").write_text(f"#!/bin/sh\n{aggverify}\n")
    (tools / "aggverify").chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", line],
        cwd=at,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "no_proxy": "*"} | environment,
        capture_output=True,
        text=True,
    )


AGGVERIFY = f'exec {sys.executable} -m aggverify "$@"'


def test_the_action_fetches_the_base_and_hands_on_what_it_is_given(clone: Repository) -> None:
    base = clone.git("ls-remote", "origin", "main").split()[0]
    [*_, line] = lines(ACTION)
    given = {"BASE": base, "TARGETS": "r.py b.py:f", "MODES": "token_mean prompt_mean"}
    more = {"BASELINE": "known.json", "PROFILE": "quick", "DOCUMENTS": "out"}
    more |= {"ENGINE": "mean", "OPTIONS": "--world 2", "CONVENTION": "native"}
    more["GITHUB_OUTPUT"] = str(clone.path.parent / "outputs")
    done = shell(
        line, clone.path, "printf '%s\\n' \"$@\"", GITHUB_ACTION_PATH=str(ROOT), **given, **more
    )
    words = done.stdout.split("\n")[:-1]
    assert words[:3] == ["compare", "--revisions", "--github"], done
    assert words[-5:] == ["--", base, "HEAD", "r.py", "b.py:f"]
    assert words.count("--mode") == 2
    assert [words[words.index(f"--{name}") + 1] for name in ("baseline", "engine", "world")] == [
        "known.json",
        "mean",
        "2",
    ]
    written = Path(more["GITHUB_OUTPUT"]).read_text()
    assert written == "exit-code=0\nverdict=out/head.json\n"
    assert clone.git("rev-parse", f"{base}^{{commit}}") == base
    assert shell(line, clone.path, "true", GITHUB_ACTION_PATH=str(ROOT)).returncode != 0


def test_nothing_that_a_pull_request_writes_is_part_of_a_script() -> None:
    for text in (ACTION, CHECKS, COMMENTS):
        assert all("${{" not in line for line in lines(text))
        assert "on: pull_request_target" not in text and "pull_request_target:" not in text
    assert "permissions:\n  contents: read\n" in CHECKS and "write" not in CHECKS
    assert "checkout" not in COMMENTS and "contents:" not in COMMENTS
    assert "workflows: [aggverify]" in COMMENTS and CHECKS.split("\n")[1] == "name: aggverify"
    inputs = set(re.findall(r"inputs\.([\w-]+)", ACTION))
    assert inputs == set(
        re.findall(r"^  ([\w-]+):\n    description", ACTION.partition("outputs:")[0], re.M)
    )
    page = (ROOT / "docs" / "recipes" / "pull-requests.md").read_text()
    named = page[page.index("| input |") : page.index("Outputs:")]
    assert inputs == set(re.findall(r"`([a-z-]+)`", named)) - {"none"}
    # The second workflow finds what the first one uploads, whatever its job is called.
    [uploaded] = re.findall(r"name: (aggverify-\$.*)", ACTION)
    [pattern] = re.findall(r"pattern: (.*)", COMMENTS)
    assert fnmatchcase(re.sub(r"\$\{\{.*?\}\}", "x", uploaded), pattern)
    assert "codequality: gl-code-quality-report.json" in GITLAB


GH = """#!{python}
import json, os, subprocess, sys

words = sys.argv[1:]
with open(os.environ["ASKED"], "a") as asked:
    asked.write(json.dumps(words) + "\\n")
kind = "comments" if any(word.endswith("/comments") for word in words) else "pulls"
if "--jq" in words:
    filter = words[words.index("--jq") + 1]
    subprocess.run(["jq", "-r", filter], input=os.environ[kind], text=True, check=True)
"""
"""GitHub's command: what it was asked, and answers that the test gives."""
PULLS = [{"number": 4, "head": {"sha": "old"}}, {"number": 5, "head": {"sha": "abc"}}]
STRANGER = {"id": 1, "body": f"{MARKER} mine", "user": {"login": "me"}}
OTHER = {"id": 2, "body": "coverage", "user": {"login": "github-actions[bot]"}}
OURS = {"id": 3, "body": f"{MARKER} old", "user": {"login": "github-actions[bot]"}}
POSTED = ["pr", "comment", "5", "--body-file", "comment.md"]
EDITED = ["api", "--method", "PATCH", "repos/o/r/issues/comments/3"]


@pytest.mark.skipif(
    shutil.which("jq") is None, reason="filters are jq's, which GitHub has built in"
)
@pytest.mark.parametrize(
    ("comments", "pulls", "last"),
    [
        ([STRANGER, OTHER], PULLS, POSTED),
        ([STRANGER, OTHER, OURS], PULLS, EDITED),
        ([OURS], PULLS[:1], []),
    ],
    ids=["first", "there is one of ours", "another commit is the head"],
)
def test_the_comment_is_made_from_what_the_first_workflow_left(
    tmp_path: Path, comments: list[object], pulls: list[object], last: list[str]
) -> None:
    folder = tmp_path / "job" / "documents"
    folder.mkdir(parents=True)
    for side, made in zip(("base", "head"), pairs()[Kind.NEW_FAILURE](), strict=True):
        (folder / f"{side}.json").write_text(render(made))
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "gh").write_text(GH.format(python=sys.executable))
    (tmp_path / "tools" / "gh").chmod(0o755)
    [*_, step] = yaml.safe_load(COMMENTS)["jobs"]["comment"]["steps"]
    given = {"GH_REPO": "o/r", "HEAD": "fork:patch/1", "COMMIT": "abc"}
    assert given.keys() | {"GH_TOKEN"} == step["env"].keys()
    given |= {"ASKED": str(tmp_path / "asked")}
    given |= {"comments": json.dumps(comments), "pulls": json.dumps(pulls)}
    done = shell(step["run"], folder.parent, AGGVERIFY, **given)
    assert done.returncode == 0, done
    asked = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    assert "head=fork:patch/1" in asked[0]
    if last:
        assert asked[-1][: len(last)] == last
        text = (folder.parent / "comment.md").read_text()
        assert text.startswith(f"{MARKER}\n\n### ❌ Merging this makes gradients")
    else:
        assert len(asked) == 1 and "no open pull request has abc" in done.stdout


def test_what_is_no_document_is_not_commented(tmp_path: Path) -> None:
    folder = tmp_path / "job" / "documents"
    folder.mkdir(parents=True)
    for side in ("base", "head"):
        (folder / f"{side}.json").write_text('{"schema": 6, "verdicts": "<b>"}')
    [*_, step] = yaml.safe_load(COMMENTS)["jobs"]["comment"]["steps"]
    assert shell(step["run"], folder.parent, AGGVERIFY).returncode == 1
    assert not (folder.parent / "comment.md").exists()


@pytest.mark.thorough
def test_the_action_from_a_checkout_to_the_report(clone: Repository, tmp_path: Path) -> None:
    base = clone.git("ls-remote", "origin", "main").split()[0]
    [*_, line] = lines(ACTION)
    given = {"BASE": base, "TARGETS": "r.py", "PROFILE": "quick", "DOCUMENTS": "out"}
    given |= {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    given |= {"GITHUB_WORKSPACE": str(clone.path), "GITHUB_ACTION_PATH": str(ROOT)}
    done = shell(line, clone.path, AGGVERIFY, **given)
    assert done.returncode == 1, done
    assert "::error file=r.py,line=6,title=new-failure%3A AGV202 " in done.stdout
    assert "### ❌ Merging this makes some gradients" in (tmp_path / "summary.md").read_text()
    files = sorted(path.name for path in (clone.path / "out").iterdir())
    assert files == ["base.json", "head.json", "report.html"]
