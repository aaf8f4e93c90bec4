"""Hostile files, and what ranks may say: ``python benchmarks/fuzz_files.py [SECONDS]`` (3600).

The same cases, verdict documents, baselines, snapshots, settings and frames as
``tests/unit/test_hostile.py``, with another seed every round. Ends at once, with the smallest
example, should a reader raise anything but its own errors, else writes the figure of
``reports/containment.md``.
"""

from __future__ import annotations

import datetime
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, settings
from hypothesis.strategies import SearchStrategy

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import hostile, hostile_documents

ROUND = 500
FIGURE = Path(__file__).parents[1] / "reports" / "fuzzed.txt"
Reader = Callable[[Any], None]


def readers(folder: Path) -> dict[str, tuple[SearchStrategy[Any], Reader]]:
    """Every reader by what it is given."""
    case, toml = folder / "case.json", folder / "pyproject.toml"
    known, pinned = folder / "baseline.json", folder / "snapshot.txt"
    return {
        "cases": (hostile.documents(), hostile.feed),
        "files of cases": (hostile.texts(), lambda text: hostile.feed_file(text, case)),
        "verdict documents": (
            hostile_documents.verdict_documents(),
            hostile_documents.feed_verdict,
        ),
        "baselines": (
            hostile_documents.baselines(),
            lambda data: hostile_documents.feed_baseline(data, known),
        ),
        "snapshots": (
            hostile_documents.snapshots(),
            lambda text: hostile_documents.feed_snapshot(text, pinned),
        ),
        "settings": (hostile.settings_texts(), lambda text: hostile.feed_settings(text, toml)),
        "times what a rank says": (hostile.said(), hostile.feed_rank),
    }


def fuzz(strategy: SearchStrategy[Any], reader: Reader, seed: int) -> int:
    """One round; the number of examples."""
    count = 0

    @hypothesis.seed(seed)
    @settings(
        max_examples=ROUND,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(strategy)
    def run(data: Any) -> None:
        nonlocal count
        count += 1
        reader(data)

    run()
    return count


def main() -> None:
    """Fuzz until the time is over; print how much was read."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0
    began, seed = time.monotonic(), int(time.time())
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() - began < seconds:
            seed += 1
            for what, (strategy, reader) in readers(Path(folder)).items():
                counts[what] += fuzz(strategy, reader, seed)
            done = ", ".join(f"{count} {what}" for what, count in counts.items())
            spent = f"{time.monotonic() - began:.0f} s ({time.process_time():.0f} s of a processor)"
            print(f"{spent}: {done}", flush=True)
    today = datetime.date.today().isoformat()
    text = f"Fuzzed on {today} for {spent}, with {done}: all read, or refused with a sentence.\n"
    FIGURE.write_text("\n".join(textwrap.wrap(text, 100)) + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
