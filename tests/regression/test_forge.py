"""Comments, annotations and summaries: what a forge is told, against one in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aggverify.codes.identity import About
from aggverify.regression.compare import compare
from aggverify.regression.model import Kind
from aggverify.regression.places import commands
from aggverify.report.markdown import MARKER
from aggverify.report.model import render
from tests.conftest import Cli, Ran
from tests.regression.documents import document, pairs, verdict
from tests.regression.forges import Standin, standin
from tests.unit.test_reports_hostile import HOSTILE

PULL = {"pull_request": {"number": 12}}
FOLLOWED = {
    "workflow_run": {
        "head_sha": "abc",
        "head_branch": "patch/1",
        "head_repository": {"owner": {"login": "fork"}},
        "pull_requests": [],
    }
}


@pytest.fixture
def forge() -> Iterator[Standin]:
    with standin() as made:
        yield made


@pytest.fixture
def comment(cli: Cli, tmp_path: Path, forge: Standin):  # type: ignore[no-untyped-def]
    """Compare a pair of documents and comment, as a job of that forge does."""

    def run(kind: Kind, event: object = PULL, where: str = "github", *more: str) -> Ran:
        for side, made in zip(("base", "head"), pairs()[kind](), strict=True):
            (tmp_path / f"{side}.json").write_text(render(made))
        (tmp_path / "event.json").write_text(json.dumps(event))
        env = {
            "GITHUB_API_URL": forge.address,
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_TOKEN": "t",
            "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            "GITHUB_WORKSPACE": str(tmp_path),
            "CI_API_V4_URL": f"{forge.address}/api/v4",
            "CI_PROJECT_ID": "3",
            "CI_MERGE_REQUEST_IID": "12",
            "AGGVERIFY_GITLAB_TOKEN": "t",
            "no_proxy": "*",
        }
        return cli("compare", "base.json", "head.json", "--comment", where, *more, env=env)

    return run


@pytest.mark.parametrize("where", ["github", "gitlab"])
def test_there_is_one_comment_and_it_is_edited(where: str, comment, forge: Standin) -> None:  # type: ignore[no-untyped-def]
    others = [{"id": n + 1, "body": "said", "user": {}} for n in range(120)]
    stranger = {"id": 121, "body": f"{MARKER} mine", "user": {"type": "User"}, "author": {"id": 1}}
    stranger["author_association"] = "OWNER"
    forge.comments = [*others, stranger]
    for kind, said in (
        (Kind.NEW_FAILURE, "posted"),
        (Kind.NEW_FAILURE, "unchanged"),
        (Kind.FIXED, "edited"),
    ):
        ran = comment(kind, PULL, where)
        assert ran.code == (kind is Kind.NEW_FAILURE) and f"comment: {said}" in ran.err, ran
    assert len(forge.comments) == 122, "one of ours, and a stranger's with our marker is left alone"
    assert stranger["body"] == f"{MARKER} mine"
    assert "### ✅ Merging this fixes AGV201" in forge.comments[-1]["body"]
    writes = [method for method, _ in forge.asked if method != "GET"]
    assert writes == ["POST", "PATCH" if where == "github" else "PUT"]


def test_a_token_of_somebody_s_own_edits_what_they_wrote(comment, forge: Standin) -> None:  # type: ignore[no-untyped-def]
    forge.login = "me"
    users = ({"type": "Bot", "login": "b[bot]"}, {"type": "User", "login": "me"})
    forge.comments = [
        {"id": n, "body": f"{MARKER} old", "user": user} for n, user in enumerate(users, 1)
    ]
    ran = comment(Kind.FIXED)
    assert "comment: edited" in ran.err, ran
    assert [c["body"] == f"{MARKER} old" for c in forge.comments] == [True, False]


def test_where_the_token_may_not_write_the_report_stands(comment, forge: Standin) -> None:  # type: ignore[no-untyped-def]
    forge.forbidden = True
    ran = comment(Kind.FIXED)
    assert ran.code == 0 and "no comment, the token may not write one: POST" in ran.err


def test_a_workflow_that_followed_asks_the_forge_which_pull_request_it_was(
    comment, forge: Standin
) -> None:  # type: ignore[no-untyped-def]
    forge.pulls = [{"number": 4, "head": {"sha": "old"}}, {"number": 5, "head": {"sha": "abc"}}]
    ran = comment(Kind.FIXED, FOLLOWED)
    assert ran.code == 0 and ("POST", "/repos/o/r/issues/5/comments") in forge.asked
    forge.pulls = []
    ran = comment(Kind.FIXED, FOLLOWED)
    assert ran.code == 2 and "no open pull request has 'abc' as its head" in ran.err
    gone = {"workflow_run": {**FOLLOWED["workflow_run"], "head_repository": None}}
    ran = comment(Kind.FIXED, gone)
    assert ran.code == 2 and "the fork that the pull request came from is gone" in ran.err
    ran = comment(Kind.FIXED, {"push": {}})
    assert ran.code == 2 and "neither a pull request nor a workflow" in ran.err


def test_the_summary_and_the_line_of_the_reducer(comment, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "r.py").write_text("import torch\n\ndef reduce(losses, batch):\n    pass\n")
    ran = comment(Kind.NEW_FAILURE, PULL, "github", "--github")
    [line] = [line for line in ran.out.splitlines() if line.startswith("::")]
    assert line.startswith("::error file=r.py,line=3,title=new-failure%3A AGV201 ")
    assert "Merging this makes gradients cp_size times too small" in line
    assert "Reproduce: aggverify replay " in line
    assert (tmp_path / "summary.md").read_text().startswith(MARKER)


def test_at_most_ten_annotations_of_one_line_each(tmp_path: Path) -> None:
    red = verdict(HOSTILE, reports=1)
    many = [replace(red, about=About(f"r{n}.py:reduce", f"{HOSTILE}{n}", "sum")) for n in range(14)]
    lines = commands(compare(document(), document(*many)), tmp_path)
    assert len(lines) == 10 and lines[-1] == "::notice::5 more changes: see the report"
    assert all(line.isprintable() and line.startswith("::") for line in lines)


def test_the_code_quality_report(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("\ndef reduce(losses, batch):\n    pass\n")
    for side, made in zip(("base", "head"), pairs()[Kind.NEW_FAILURE](), strict=True):
        (tmp_path / f"{side}.json").write_text(render(made))
    ran = cli("compare", "base.json", "head.json", "--format", "codequality")
    [found] = json.loads(ran.out)
    assert found["location"] == {"path": "r.py", "lines": {"begin": 2}}
    assert found["severity"] == "major" and len(found["fingerprint"]) == 64
    assert found["description"].startswith("AGV201 Result depends on context-parallel size: ")
