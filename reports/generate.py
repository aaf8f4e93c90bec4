"""Regenerate the committed evidence: ``python reports/generate.py`` writes ``performance.md``.

Figures are ratios within one run wherever that says more; run it on a machine with nothing else
to do.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
PARTS = (
    ("The whole path: drawing, ranks, oracle, comparison", "end_to_end.py"),
    ("The rank pool alone, beside what one would write instead", "pool.py"),
    ("Exact sums of a step of 512 rollouts of 32k tokens", "exact_sums.py"),
)


def measured(script: str) -> str:
    """The output of one benchmark."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    return done.stdout.rstrip()


def main() -> None:
    """Run every benchmark and write the report."""
    lines = [
        "# Performance",
        "",
        "Written by `python reports/generate.py`; do not edit.",
        "",
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}.",
    ]
    for title, script in PARTS:
        lines += ["", f"## {title}", "", f"`python benchmarks/{script}`", "", "```"]
        lines += [measured(script), "```"]
    (HERE / "performance.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
