"""Hostile files, and what ranks may say: ``python benchmarks/fuzz_files.py [SECONDS]`` (3600).

The same documents, texts, settings and frames as ``tests/unit/test_hostile.py``, with another seed
every round. Ends at once, with the smallest example, should a reader raise anything but its own
errors. In 65 minutes on a busy machine 230,000 documents and as many files, and 26,000 settings,
found one: a negative NaN written apart.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, settings
from hypothesis.strategies import SearchStrategy

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import hostile

ROUND = 1000


def fuzz(strategy: SearchStrategy[Any], reader: Callable[[Any], None], seed: int) -> int:
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
    documents = texts = settings_files = frames = 0
    with tempfile.TemporaryDirectory() as folder:
        path, toml = Path(folder) / "case.json", Path(folder) / "pyproject.toml"
        while time.monotonic() - began < seconds:
            seed += 1
            documents += fuzz(hostile.documents(), hostile.feed, seed)
            texts += fuzz(hostile.texts(), lambda text: hostile.feed_file(text, path), seed)
            settings_files += fuzz(
                hostile.settings_texts(), lambda text: hostile.feed_settings(text, toml), seed
            )
            frames += fuzz(hostile.said(), hostile.feed_rank, seed)
            done = f"{documents} documents, {texts} JSON files, {settings_files} settings"
            done += f", {frames} times what a rank says"
            print(f"{time.monotonic() - began:.0f} s: {done}", flush=True)
    print(f"{done}: read, or refused with a sentence")


if __name__ == "__main__":
    main()
