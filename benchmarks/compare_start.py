"""How long ``aggverify compare`` takes on two stored documents of six verdicts with five findings
each, beside an empty Python: seconds of processor time, the best of a few, and their ratio.
``python benchmarks/compare_start.py [TIMES]``
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from aggverify.model import Document, render  # noqa: E402
from tests.regression.documents import document, verdict  # noqa: E402

TIMES, VERDICTS, FINDINGS = 5, 6, 5


def stored(findings: int) -> Document:
    """So many findings in every verdict, each of another mode."""
    one = verdict(reports=findings)
    about = [replace(one.about, mode=f"mode {n}") for n in range(VERDICTS)]
    return document(*(replace(one, about=each) for each in about))


def seconds(command: list[str], folder: Path) -> float:
    """Of the processor, of one run with its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, capture_output=True, env={"PYTHONPATH": str(ROOT)})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(times: int = TIMES) -> tuple[float, float]:
    """Of an empty Python, and of a comparison as Markdown; the best of each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side in ("base", "head"):
            (folder / f"{side}.json").write_text(render(stored(FINDINGS)))
        files = ["base.json", "head.json", "--format", "md"]
        empty = [sys.executable, "-c", "pass"]
        full = [sys.executable, "-m", "aggverify", "compare", *files]
        runs = [(seconds(empty, folder), seconds(full, folder)) for _ in range(times)]
    return min(one for one, _ in runs), min(one for _, one in runs)


def main() -> None:
    empty, full = measured(int(sys.argv[1]) if sys.argv[1:] else TIMES)
    print(f"python -c pass {empty:.3f} s, compare {full:.3f} s: {full / empty:.1f} times")


if __name__ == "__main__":
    main()
