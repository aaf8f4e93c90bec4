"""Seconds of a default run, and until its first finding is shown, beside one ``import torch``.

    python benchmarks/default_run.py

Each is a command as a person gives it, from its start, with its own imports; what is shown is read
as it comes. Every command is run ROUNDS times, and ``import torch`` before and after each, since a
shared machine is at times half as fast: a ratio is that to the mean of these two. Medians are
shown. Modules are compiled once, as where they are installed, whatever this machine says of that.
Processor time is that of all processes: over the number of cores it is what no run can be below.
"""

from __future__ import annotations

import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
ROUNDS = 5
RIGHT = (
    ("no library engine to end with", [str(EXAMPLES / "native" / "sum" / "token_mean.py")]),
    ("closed under the library's engine", [str(EXAMPLES / "native" / "mean" / "token_mean.py")]),
    (
        "issues collectives: also launched ranks",
        ["tests.corpus.blind.worlds.nodes:two_levels", "--mode", "token_mean"],
    ),
)
BROKEN = ("cp_shard_mean", "micro_batch_token_mean", "padded_width", "bfloat16_count")
WRONG = {name: [str(EXAMPLES / "broken" / f"{name}.py")] for name in BROKEN} | {
    "ranks wait for each other": ["tests.corpus.blind.ids.owners:prompts_agreed_on_by_ranks"]
}
SHOWN = re.compile(r"\] AGV\d+ ")
"""A finding among the lines of progress."""
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def import_torch() -> float:
    """Seconds of ``import torch`` in a fresh interpreter."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True, env=ENVIRONMENT)
    return time.perf_counter() - start


def processor_time() -> float:
    """Seconds of it that all processes have taken which this one has started, and which ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(arguments: Sequence[str]) -> tuple[tuple[float, float, float], int]:
    """Seconds until the first finding is shown (of a right one: inf), until the end, and of
    processor time; and the exit code."""
    start, first, before = time.perf_counter(), float("inf"), processor_time()
    command = [sys.executable, "-u", "-m", "aggverify", "check", *arguments]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if SHOWN.search(line):
                first = min(first, time.perf_counter() - start)
    seconds = first, time.perf_counter() - start, processor_time() - before
    return seconds, running.returncode


def medians(arguments: Sequence[str], wanted: int) -> tuple[float, float, float]:
    """Of several runs, what ``timed`` returns in imports; each must end as it should."""
    imports, rounds = [import_torch()], []
    for _ in range(ROUNDS):
        seconds, code = timed(arguments)
        if code != wanted:
            raise SystemExit(f"{' '.join(arguments)} ended with {code}, not {wanted}")
        imports.append(import_torch())
        torch = statistics.mean(imports[-2:])
        rounds.append([each / torch for each in seconds])
    first, end, processor = map(statistics.median, zip(*rounds, strict=True))
    return first, end, processor


def main() -> None:
    print(f"{os.cpu_count()} cores; x: times import torch")
    for what, arguments in RIGHT:
        _, end, processor = medians(arguments, 0)
        print(f"right, {what}: {end:.1f} x, processor time {processor:.1f} x")
    for what, arguments in WRONG.items():
        first, end, _ = medians(arguments, 1)
        print(f"{what}: first finding after {first:.1f} x, all after {end:.1f} x")


if __name__ == "__main__":
    main()
