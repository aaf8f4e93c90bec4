"""``python reports/pictures.py``: what pytest prints, as ``docs/pictures/pytest.svg``.

The three-line test file of docs/recipes/pytest.md for a right and a broken reducer of
``examples/``, run by ``pytest -n auto`` in a project of their own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
REDUCERS = {
    "token_mean.py": ROOT / "examples" / "native" / "sum" / "token_mean.py",
    "micro_batch.py": ROOT / "examples" / "broken" / "micro_batch_token_mean.py",
}
TEST = """
import aggverify
test_token_mean = aggverify.conformance("token_mean.py", modes=["token_mean"])
test_micro_batch = aggverify.conformance("micro_batch.py", modes=["token_mean"])
"""
COMMAND = ("pytest", "-n", "auto", "-q", "--color=yes")
WIDTH = 112


def ran() -> str:
    """The output, as a terminal of that width gets it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, source in REDUCERS.items():
            shutil.copy(source, folder / file)
        (folder / "test_loss.py").write_text(TEST)
        (folder / "pytest.ini").write_text("[pytest]\n")
        env = os.environ | {"COLUMNS": str(WIDTH)}
        command = [sys.executable, "-m", *COMMAND, "-p", "no:cacheprovider", "-W", "ignore"]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        return done.stdout


def shortened(out: str) -> str:
    """The first failing test in full; then the summary; without what differs from run to run."""
    lines = [line for line in out.split("\n") if not line.startswith(("[gw", "bringing up"))]
    tests = [n for n, line in enumerate(lines) if "___ test_" in line]
    summary = next(n for n, line in enumerate(lines) if "= aggverify =" in line)
    kept = [*lines[: tests[1] + 1], "  …", "", *lines[summary:]]
    return re.sub(r" in [\d.]+s( \(.*?\))?", "", "\n".join(kept).strip())


def main() -> None:
    """Run it and write the picture."""
    console = Console(record=True, width=WIDTH, file=StringIO())
    console.print(Text("$ pytest -n auto -q", style="bold"))
    console.print(Text.from_ansi(shortened(ran())))
    console.save_svg(str(ROOT / "docs" / "pictures" / "pytest.svg"), title="pytest -n auto")


if __name__ == "__main__":
    main()
