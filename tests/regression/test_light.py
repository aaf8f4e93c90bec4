"""``compare`` imports nothing that runs anything: it is as fast as Python starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from aggverify.model import render
from aggverify.regression.model import Kind
from tests.conftest import ROOT
from tests.regression.documents import pairs

SOURCE = """
import sys
from aggverify.cli import main
try:
    main()
except SystemExit as end:
    assert end.code == 1, end.code
heavy = {'torch', 'hypothesis', 'numpy', 'mpmath', 'rich'} & set(sys.modules)
ours = [name for name in sys.modules if name.startswith(('aggverify.run', 'aggverify.checks'))]
assert not heavy and not ours, (heavy, ours)
"""


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    for side, document in zip(("base", "head"), pairs()[Kind.NEW_FAILURE](), strict=True):
        (tmp_path / f"{side}.json").write_text(render(document))
    done = subprocess.run(
        [sys.executable, "-P", "-c", SOURCE, "compare", "base.json", "head.json", "--format", "md"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Merging this makes gradients" in done.stdout
