"""Every block of README, CONTRIBUTING and the site is run, those of one document in order."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.conftest import EXAMPLES, ROOT
from tests.quality.command_lines import commands_of, parse

DOCUMENTS = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if not path.name.startswith(("AGV", "CHANGELOG"))
)
IDS = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
FENCE = re.compile(r"^ *```+([^\n]*)\n(.*?)^ *```+ *$", re.MULTILINE | re.DOTALL)
SILENT = {"", "text", "{toctree}", "{eval-rst}"}
"""Output, drawings, and README's two commands, which .ci/run and the network suite run."""


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_every_block_is_of_a_kind_that_is_run_and_every_command_parses(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    kinds = {found[1].split(" ")[0].strip() for found in FENCE.finditer(text)}
    assert kinds - SILENT <= {*("console", "python", "toml", "yaml", "json", "sh"), "{generated}"}
    for command in {*commands_of("\n".join(re.findall(r"`(aggverify [^`\n]+)`", text)))}:
        parse(command)
    for found in FENCE.finditer(text):
        if found[1] in ("sh", "console"):
            is_run = found[1] == "console"
            typed = [t for t in found[2].splitlines() if t.startswith("$ ") or not is_run]
            for command in commands_of("\n".join(typed)):
                parse(command)


@pytest.mark.thorough
@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_every_block_runs(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("sybil", reason="pip install -e '.[docs]'")
    pytest.importorskip("yaml", reason="pip install -e '.[docs]'")
    from tests.quality.blocks import parsed

    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".venv").symlink_to(sys.prefix)
    document = parsed(path)
    document.namespace["folder"] = tmp_path
    for example in document.examples():
        example.evaluate()
