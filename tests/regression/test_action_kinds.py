"""The action, from a checkout to the summary, for a pull request of each kind of change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aggverify.regression.model import Kind
from aggverify.report.markdown import MARKER
from tests.choosing import thorough_but
from tests.conftest import ROOT, Cli
from tests.regression.repository import Repository, repository
from tests.regression.test_action import ACTION, AGGVERIFY, lines, shell
from tests.regression.test_again import REDUCER, RIGHT, WRONG

FILES = Mapping[str, str | None]
SETTINGS = "[tool.aggverify]\nmax_examples = 3\nmax_time = 900\nworld = {world}\n"
BY_BATCHES = REDUCER.format(does="", count="batch.num_tokens * batch.num_microbatches")
MULTIPLIES = RIGHT.replace(
    "kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)",
    "kept = torch.cat(batch.local_masks) * losses",
)
SELDOM = REDUCER.format(
    does="if os.environ.get('SELDOM'):\n        kept = kept * 2", count="batch.num_tokens"
).replace("import torch", "import os\nimport torch")
ROUNDS = REDUCER.format(
    does="for n in (3.0, 7.0, 11.0):\n        kept = kept * n / n", count="batch.num_tokens"
)


@dataclass(frozen=True, slots=True)
class Pull:
    """What the two commits have, and what is said of them."""

    exit: int
    headline: str
    head: FILES
    base: FILES = field(default_factory=lambda: {"r.py": RIGHT})


def waived(text: str, **more: str) -> FILES:
    """A reducer, and its known findings; the test makes these."""
    return {"r.py": text, "known.json": json.dumps(more)}


PULLS: Mapping[Kind, Pull] = {
    Kind.COVERAGE_LOST: Pull(
        1, "❌ Merging this verifies less", {"pyproject.toml": SETTINGS.format(world=1)}
    ),
    Kind.NEW_FAILURE: Pull(1, "❌ Merging this makes some gradients", {"r.py": WRONG}),
    Kind.CHANGED_FAILURE: Pull(
        1, "❌ Merging this makes", {"r.py": BY_BATCHES}, {"r.py": WRONG}
    ),
    Kind.EXPIRED: Pull(
        1, "❌ No longer accepted", waived(WRONG, expires="2020-01-01"), waived(WRONG)
    ),
    Kind.ERROR: Pull(2, "❌ Could not compare", {"r.py": f"{RIGHT}\nraise RuntimeError('no')\n"}),
    Kind.PRECISION_WORSE: Pull(0, "✅ No failure is new", {"r.py": ROUNDS}),
    Kind.NEW_HAZARD: Pull(0, "✅ No failure is new", {"r.py": MULTIPLIES}),
    Kind.NEW_WARNING: Pull(0, "✅ No failure is new", {"r.py": SELDOM}),
    Kind.KNOWN: Pull(
        0, "✅ No failure is new", {"r.py": f"{WRONG}# a comment\n"}, {"r.py": WRONG}
    ),
    Kind.FIXED: Pull(0, "✅ Merging this fixes AGV202", {"r.py": RIGHT}, {"r.py": WRONG}),
    Kind.UNCHANGED: Pull(0, "✅ Nothing changes", {"r.py": f"{RIGHT}# a comment\n"}),
}  # fmt: skip


def test_there_is_a_pull_request_of_every_kind() -> None:
    assert list(PULLS) == list(Kind)
    for pull in PULLS.values():
        assert {**pull.base, **pull.head} != pull.base, "something is changed"


def cloned(pull: Pull, known: list[dict[str, object]], folder: Path) -> Repository:
    """The checkout of a job: the head alone, of a bare repository."""
    more = {"pyproject.toml": SETTINGS.format(world=2)}
    made = repository(folder / "work", {**more, **filled(pull.base, known)})
    made.branch("patch", filled(pull.head, known))
    origin = folder / "origin.git"
    made.git("clone", "-q", "--bare", str(made.path), str(origin))
    clone = folder / "clone"
    made.git("clone", "-q", "--depth=1", "--branch", "patch", f"file://{origin}", str(clone))
    return Repository(clone)


def filled(files: FILES, known: list[dict[str, object]]) -> dict[str, str | None]:
    """With known findings, where some are to be known."""
    found = dict(files)
    if (more := found.get("known.json")) is not None:
        entries = [{**entry, **json.loads(more)} for entry in known]
        found["known.json"] = json.dumps({"schema": 1, "known": entries})
    return found


@pytest.mark.parametrize(
    "kind",
    thorough_but(Kind, lambda _: False, ids=str, each=18),
)
def test_from_a_pull_request_to_its_summary(kind: Kind, cli: Cli, tmp_path: Path) -> None:
    pull, known = PULLS[kind], []
    if "known.json" in pull.base:
        (tmp_path / "r.py").write_text(WRONG)
        brief = ("--profile", "quick", "--max-examples", "3", "--world", "2")
        assert cli("check", "r.py", *brief, "--baseline", "k.json", "--baseline-write").code == 0
        known = json.loads((tmp_path / "k.json").read_text())["known"]
    clone = cloned(pull, known, tmp_path)
    [*_, line] = lines(ACTION)
    summary = tmp_path / "summary.md"
    done = shell(
        line, clone.path, AGGVERIFY,
        BASE=clone.git("ls-remote", "origin", "main").split()[0],
        TARGETS="r.py", PROFILE="quick", DOCUMENTS="out",
        BASELINE="known.json" if known else "",
        GITHUB_STEP_SUMMARY=str(summary),
        GITHUB_WORKSPACE=str(clone.path), GITHUB_ACTION_PATH=str(ROOT),
    )  # fmt: skip
    assert done.returncode == pull.exit, done
    text = summary.read_text()
    assert text.startswith(MARKER) and f"### {pull.headline}" in text, text
    assert f" {kind}" in text
    assert (clone.path / "out" / "report.html").read_text().startswith("<!DOCTYPE html>")
