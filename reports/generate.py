"""Regenerate the committed evidence: ``python reports/generate.py`` writes ``performance.md`` and
its plots; with names of benchmarks (``default_run.py``) only their sections of it.

Figures are ratios within one run wherever that says more; run it on a machine with nothing else
to do. Needs the ``reports`` extra; ``MultiProcContinuousTest`` wants ``expecttest``.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plots

HERE = Path(__file__).parent
ROOT = HERE.parent
PARTS = (
    ("The whole path: drawing, ranks, oracle, comparison", "end_to_end.py", None),
    ("A default run, and until its first finding is shown", "default_run.py", None),
    ("The same check on a loaded machine", "loaded.py", None),
    ("The rank pool alone, beside what one would write instead", "pool.py", "throughput"),
    ("A case under real engines, beside their formulas", "real_engines.py", None),
    ("Cost against size", "scaling.py", "scaling"),
    ("A step of production size against its tokens", "production.py", None),
    ("Making a hang small", "hangs.py", None),
    ("A pool per pytest-xdist worker, or one", "workers.py", None),
    ("Two stored documents compared, beside an empty Python", "compare_start.py", None),
    ("Exact sums of a step of 512 rollouts of 32k tokens", "exact_sums.py", None),
    ("`pytest` beside `aggverify check`, four modes", "pytest_face.py", None),
)
TARGETS = """Targets on two cores:

- at least 1,000 times `mp.spawn` per case at a world of 4;
- at least 60 % of what the bare collectives of a case allow at 2, 4 and 8;
- pool start under 1.5 x `import torch`;
- 400 cases a second end to end with worlds mixed evenly over 1, 2, 4 and 8;
- ranks under 600 MB;
- a hang found within 0.2 s, and made small within 3 s of being seen;
- cost linear in tokens and cases, up to 16 million tokens on 8 ranks;
- exact sums within 20 x a plain sum;
- two documents compared within 10 x an empty Python;
- a default run within 5 x `import torch`, 8 x where ranks are launched as well; its first finding
  within 1.3 x."""
REMARKS = {
    "default_run.py": """\
torch's DDP in place of FSDP2 would save 0.1 x, as both import torch._dynamo. Ranks that wait miss
the target of a first finding: they are seen to wait twice before they are shown.""",
    "pool.py": """\
Remark of 2026-11-27, not measured anew. The pool was opened next to the one before several machines
went over torch's own store (`f507d8a`). Both were asked in turn, twelve times each, medians: 0.98
to 1.11 times as many cases a second. That is over worlds of 1, 2, 4 and 8, one or two reductions,
together or one by one: sixteen rows, the median one 1.04. In the same hour, on a machine half as
fast as this page's then, a hang was found after 67 to 72 ms; a fresh world of 8 answered after
87 ms.""",
}
"""By its script, what stands below a part and is not measured anew."""


def measured(script: str, figures: Path | None) -> str:
    """The output of one benchmark, which may write its figures to a file as well."""
    done = subprocess.run(
        [sys.executable, script, *(["--json", str(figures)] if figures else [])],
        cwd=ROOT / "benchmarks",
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        sys.exit(f"benchmarks/{script} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout.rstrip()


def section(title: str, script: str, plot: str | None) -> list[str]:
    """One benchmark with its plot."""
    print(title, flush=True)
    lines = ["", f"## {title}", "", f"`python benchmarks/{script}`", ""]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json" if plot else None
        text = measured(script, path)
        if plot and path:
            figures: Any = json.loads(path.read_text())
            name = f"{plot}.svg"
            getattr(plots, plot)(figures, HERE / name)
            lines += [f"![{title}]({name})", ""]
    remark = ["", REMARKS[script]] if script in REMARKS else []
    return [*lines, "```", text, "```", *remark]


def main(names: Sequence[str]) -> None:
    """Run every benchmark, or those named, and write the report."""
    report = HERE / "performance.md"
    if names:
        report.write_text(renewed(report.read_text(), names))
        return
    lines = ["# Performance", "", "Written by `python reports/generate.py`; do not edit."]
    lines += ["", machine(), "", TARGETS]
    for part in PARTS:
        lines += section(*part)
    report.write_text("\n".join(lines) + "\n")


def machine() -> str:
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f} at the start."
    )


def renewed(text: str, names: Sequence[str]) -> str:
    """The report with these sections measured again, each with the machine as it was then."""
    head, *old = (part.rstrip() for part in text.split("\n## "))
    known = {each.partition("\n")[0]: f"## {each}" for each in old}
    for title, script, plot in PARTS:
        if script in names:
            told, made = machine(), "\n".join(section(title, script, plot)).strip()
            known[title] = made.replace("\n\n```\n", f"\n\n{told}\n\n```\n", 1)
    head = head.partition(TARGETS.partition("\n")[0])[0] + TARGETS
    return "\n\n".join([head, *(known[title] for title, *_ in PARTS if title in known)]) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
