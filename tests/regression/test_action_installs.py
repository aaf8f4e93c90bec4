"""The lines of the action and of the documented pipelines that install and fetch, run here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml

from aggverify.model import render
from aggverify.regression.model import Kind
from tests.conftest import ROOT
from tests.regression.documents import pairs
from tests.regression.repository import Repository, repository
from tests.regression.test_action import ACTION, COMMENTS, GITLAB, clone, lines

__all__ = ["clone"]
TREE = ("aggverify", "oracles", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
NAMED = "https://github.com/OWNER/aggverify"


def script(text: str) -> list[str]:
    """The commands of GitLab's job."""
    _, _, after = text.partition("  script:\n")
    body, _, _ = after.partition("  artifacts:")
    return [" ".join(each.split()) for each in re.split(r"^    - ", body, flags=re.M)[1:]]


def packed(name: str, folder: Path) -> None:
    """The wheel of a package that is installed here."""
    there = distribution(name)
    files = [f for f in there.files or () if ".." not in f.parts and f.suffix != ".pyc"]
    with zipfile.ZipFile(folder / f"{name}-{there.version}-py3-none-any.whl", "w") as wheel:
        for file in files:
            wheel.write(there.locate_file(file), str(file))


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """The environment of a job with a Python of its own, an index of three packages, and this
    project as a repository on GitHub, at the commit COMMIT."""
    venv.create(tmp_path / "python", symlinks=True, with_pip=True)
    [site] = (tmp_path / "python" / "lib").glob("python*/site-packages")
    own = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    (tmp_path / "build").mkdir()
    for name in ("hatchling", "pathspec", "pluggy", "packaging", "trove_classifiers"):
        found = next((Path(p) / name for p in own if (Path(p) / name).is_dir()), None)
        if found is None:
            pytest.skip(f"needs {name}, which the test extra installs")
        (site / name).symlink_to(found)
    index = tmp_path / "index"
    index.mkdir()
    for name in ("click", "jinja2", "markupsafe", "msgspec"):
        packed(name, index)
    project = repository(tmp_path / "project", {})
    for name in TREE:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, project.path / name)
    project.commit({})
    project.git("branch", "COMMIT")
    path = f"{tmp_path / 'python' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    away = {"PYTHONPATH", "PYTHONHOME"}
    return {k: v for k, v in os.environ.items() if k not in away} | {
        "PATH": path,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(index),
        "PIP_NO_BUILD_ISOLATION": "false",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{project.path}.insteadOf",
        "GIT_CONFIG_VALUE_0": NAMED,
    }


def bash(line: str, at: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", line],
        cwd=at,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.thorough
def test_what_the_second_workflow_installs_is_all_that_a_comparison_takes(
    job: dict[str, str], tmp_path: Path
) -> None:
    *_, install, comment = yaml.safe_load(COMMENTS)["jobs"]["comment"]["steps"]
    done = bash(install["run"], tmp_path, job)
    assert done.returncode == 0, done
    folder = tmp_path / "documents"
    folder.mkdir()
    for side, made in zip(("base", "head"), pairs()[Kind.NEW_FAILURE](), strict=True):
        (folder / f"{side}.json").write_text(render(made))
    done = bash("\n".join(comment["run"].splitlines()[:2]), tmp_path, job)
    assert done.returncode == 0, done
    assert "Merging this makes gradients" in (tmp_path / "comment.md").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["action", "gitlab"])
def test_what_checks_installs_this(where: str, job: dict[str, str], tmp_path: Path) -> None:
    """But for torch and what else it needs, which come from their own index."""
    line = lines(ACTION)[0] if where == "action" else script(GITLAB)[0]
    given = job | {"PIP_NO_DEPS": "1", "GITHUB_ACTION_PATH": str(tmp_path / "project")}
    done = bash(line, tmp_path, given)
    assert done.returncode == 0, done
    found = bash("python -c 'import aggverify; print(aggverify.__file__)'", tmp_path, given)
    assert str(tmp_path / "python") in found.stdout, found


def test_gitlab_fetches_the_base_and_compares_with_it(clone: Repository, tmp_path: Path) -> None:
    base = clone.git("ls-remote", "origin", "main").split()[0]
    _, fetch, compare = script(GITLAB)
    given = dict(os.environ) | {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base}
    done = bash(fetch, clone.path, given)
    assert done.returncode == 0 and clone.git("rev-parse", f"{base}^{{commit}}") == base, done
    (tmp_path / "aggverify").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (tmp_path / "aggverify").chmod(0o755)
    given["PATH"] = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    words = bash(compare, clone.path, given).stdout.split("\n")[:-1]
    assert words[:5] == ["compare", "--revisions", base, "HEAD", "my_package/loss.py"]
    assert words[5:] == ["--format", "codequality", "--output", "gl-code-quality-report.json"]
    assert f"codequality: {words[-1]}" in GITLAB


def test_no_line_names_a_place_that_is_not_the_readers_to_say() -> None:
    text = (ROOT / "docs" / "recipes" / "pull-requests.md").read_text()
    assert "aggverify/aggverify" not in text and text.count("OWNER/aggverify@COMMIT") >= 4
    assert "is what you write in its place" in text
