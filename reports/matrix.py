"""The cells of Python, torch and pytest that the tests were run in, in ``reports/matrix.md``.

``PYTHON reports/matrix.py`` runs the quick suite with that interpreter and puts its cell there, or
in the place of the same one run earlier; ``PYTHON reports/matrix.py --declared`` only brings the
list of cells that the workflow declares up to date.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "reports" / "matrix.md"
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
LAST_LINES = 25
HEAD = """# Cells

Written by `python reports/matrix.py`, once with each interpreter. The quick suite is what the
README's test command runs. A cell that the workflow declares but that is not shown here with its
output has not been run for this report.
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)


def cell() -> str:
    """Heading and last lines of the quick suite under this interpreter."""
    ran = run("-m", "pytest", "-n", "auto", "-q")
    memory = run("benchmarks/pool.py", "--memory").stdout.strip()
    torch = run("-c", "import torch; print(torch.__version__)").stdout.strip()
    names = f"Python {platform.python_version()}, torch {torch}, pytest {version('pytest')}"
    day = datetime.date.today().isoformat()
    last = "\n".join((ran.stdout + ran.stderr).strip().splitlines()[-LAST_LINES:])
    where = f"{os.cpu_count()} cores, exit code {ran.returncode}, {day}"
    return f"## {names}\n\n{where}; {memory}\n\n```\n{last}\n```\n"


def declared() -> str:
    """The workflow's matrix, as a list."""
    rows = re.findall(
        r'python: "(.*?)", torch: "(.*?)", pytest: "(.*?)"', WORKFLOW.read_text(encoding="utf-8")
    )
    assert rows, f"no cells in {WORKFLOW}"
    lines = [f"- Python {python}, torch {torch}, pytest {pytest}" for python, torch, pytest in rows]
    return "## Declared by the workflow\n\n" + "\n".join(lines) + "\n"


def merged(text: str, new: str | None) -> str:
    """The report with a cell added or replaced, cells in the order of their headings."""
    parts = re.split(r"(?m)^(?=## )", text)[1:]
    cells = {part.splitlines()[0]: part.rstrip() + "\n" for part in parts}
    cells = {heading: part for heading, part in cells.items() if heading.startswith("## Python")}
    if new is not None:
        cells[new.splitlines()[0]] = new
    return "\n".join([HEAD, *(cells[heading] for heading in sorted(cells)), declared()])


def main() -> None:
    new = None if sys.argv[1:] == ["--declared"] else cell()
    text = TABLE.read_text(encoding="utf-8") if TABLE.exists() else ""
    TABLE.write_text(merged(text, new), encoding="utf-8")


if __name__ == "__main__":
    main()
