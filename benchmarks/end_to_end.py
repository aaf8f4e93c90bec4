"""Cases per second of the whole path: drawing, ranks, oracle, comparison.

    python benchmarks/end_to_end.py [SECONDS_PER_WORLD]

Worlds of 1, 2, 4 and 8 ranks get the same number of drawn steps, each under a few layouts, as
checks draw them; a case is one step under one layout. Each world is timed ROUNDS times and the
fastest counts: whatever else runs on the machine can only take time away. Also printed: the time
from start to the first case, beside one ``import torch``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

from aggverify.checks import check
from aggverify.execution.executor import Executor
from aggverify.generation.space import Space
from aggverify.run.opening import frozen, opened
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.planning.claims import subjects
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import parse_target
from aggverify.run.search.drawing import LAYOUTS, draws
from aggverify.run.search.pipeline import Pipeline
from aggverify.run.search.runner import CheckRun
from aggverify.steps.case import Case
from aggverify.world import Pool

EXAMPLE = Path(__file__).parents[1] / "examples" / "native" / "sum" / "prompt_mean.py"
WORLDS = (1, 2, 4, 8)
BATCH = 24
ROUNDS = 3


def import_torch() -> float:
    """Seconds of ``import torch`` in a fresh interpreter."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - start


def drawn(check_run: CheckRun, examples: int, seed: int) -> None:
    """Draw, run and judge; the parent draws and judges while the ranks run."""
    batch: list[Case] = []
    pipeline = Pipeline(check_run.submit)
    for case in islice(draws(check_run.space, seed), LAYOUTS * examples):
        batch.append(case)
        if len(batch) >= BATCH:
            assert not any(pipeline.push(list(batch)).values())
            batch.clear()
    assert not any(pipeline.push(batch).values())
    assert not any(pipeline.drain().values())


def timed(check_run: CheckRun, examples: int, seed: int) -> tuple[float, int, int]:
    """Seconds, cases, and steps that ranks ran."""
    cases, steps, begun = check_run.cases, check_run.executor.executed, time.perf_counter()
    drawn(check_run, examples, seed)
    seconds = time.perf_counter() - begun
    return seconds, check_run.cases - cases, check_run.executor.executed - steps


def main() -> None:
    """Print one line per world, then the mix."""
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    torch_seconds = import_torch()
    target = parse_target(str(EXAMPLE))
    start = time.perf_counter()
    total_cases, total_seconds, executed = 0, 0.0, 0
    with Pool() as pool, opened(pool, target.setup()) as template, frozen():
        subject = subjects(
            Request(str(EXAMPLE), modes=("prompt_mean",)), target, template.description
        )[0]
        executor = Executor(template)
        for world in WORLDS:
            space = Space(
                max_dp=world, max_cp=world, max_microbatches=3, min_world=world, max_world=world
            )
            combined = check("independent_of_the_combination")
            check_run = CheckRun(combined, subject, space, executor, RunStatistics(), lambda: None)
            check_run.submit([next(iter(check_run.stored_cases()))]).findings()
            if world == WORLDS[0]:
                ready = time.perf_counter() - start
                print(f"ready after {ready:.2f} s = {ready / torch_seconds:.2f} x import torch")
            seconds, count, steps = min(
                (timed(check_run, examples, n) for n in range(ROUNDS)), key=lambda t: t[0] / t[1]
            )
            print(f"world {world}: {count / seconds:6.0f} cases/s, {steps / seconds:6.0f} steps/s")
            total_cases += count
            total_seconds += seconds
            executed += steps
    print(
        f"mixed:   {total_cases / total_seconds:6.0f} cases/s, "
        f"{executed / total_seconds:6.0f} steps/s"
    )


if __name__ == "__main__":
    main()
