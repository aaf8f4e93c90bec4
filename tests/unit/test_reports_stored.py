"""``aggverify render``: a stored verdict in any format, and nothing heavy is imported for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aggverify import model
from aggverify.report.formats import FORMATS
from tests import verdicts
from tests.conftest import ROOT

RED = verdicts.written(verdicts.verdict("é\x1b[2J"), verdicts.verdict(reports=0))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A document with a finding, as a file."""
    path = tmp_path / "verdict.json"
    path.write_text(model.render(RED))
    return path


def run(folder: Path, *arguments: object, code: int = 0) -> str:
    """The command's output, in a process that may import nothing heavy."""
    source = (
        "import sys\nfrom aggverify.cli import main\ntry:\n    main()\n"
        f"except SystemExit as end:\n    assert end.code == {code}, end.code\n"
        "heavy = {'torch', 'hypothesis', 'numpy', 'mpmath', 'rich'} & set(sys.modules)\n"
        "ours = [name for name in sys.modules if name.startswith('aggverify.run')]\n"
        "assert not heavy and not ours, (heavy, ours)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", source, "render", *map(str, arguments)],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", FORMATS)
def test_a_stored_verdict_is_written_as_the_run_itself_writes_it(name: str, stored: Path) -> None:
    assert run(stored.parent, stored, "--format", name) == FORMATS[name].render(RED)


def test_output_goes_to_a_file(stored: Path) -> None:
    assert run(stored.parent, stored, "--format", "md", "--output", "out/it.md") == ""
    assert (stored.parent / "out" / "it.md").read_text() == FORMATS["md"].render(RED)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch.json"], "no such file: nosuch.json"),
        (["verdict.json", "--format", "htm"], "unknown report format 'htm'; did you mean 'html'"),
        (["verdict.json", "--output", "verdict.json/x"], "cannot write verdict.json/x"),
        (["old.json"], "the verdict document.schema must be 6, got 1"),
        (["broken.json"], "cannot read a verdict document from broken.json"),
        (["case.json"], "the verdict document"),
    ],
)
def test_what_cannot_be_rendered_is_an_error(
    arguments: list[str], message: str, stored: Path
) -> None:
    (stored.parent / "old.json").write_text('{"schema": 1, "verdicts": []}')
    (stored.parent / "broken.json").write_text("{")
    (stored.parent / "case.json").write_text('{"schema": 1.0, "case": {}}')
    assert message in run(stored.parent, *arguments, code=2)
