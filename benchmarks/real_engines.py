"""Seconds of a case under torch's own engines, beside the formula that stands for them.

    python benchmarks/real_engines.py [CASES]

The same cases, in one template each, so that only the engine differs, one by one and all together;
formulas take many cases through one reduction. What an engine needs at its first use is not
counted. Each is timed ROUNDS times, in turn, and the fastest counts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from aggverify.engines import ENGINES, RealEngine
from aggverify.execution.executor import Executor
from aggverify.execution.limits import LIMITS
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import grid_case
from aggverify.run.opening import opened
from aggverify.run.planning.claims import subjects
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import parse_target
from aggverify.steps.case import Case
from aggverify.world import Pool

EXAMPLES = Path(__file__).parents[1] / "examples" / "native"
NAMES = ("ddp", "fsdp2", "fsdp2-sum", "fsdp1")
SIZES = ((1, 1, 2), (2, 1, 2), (2, 2, 2), (4, 2, 2))
"""Data parallel, context parallel, micro-batches."""
ROUNDS = 3


def executor(engine: str, pool: Pool, stack: ExitStack) -> tuple[Subject, Executor]:
    """Where a right reducer of that engine is run."""
    spec = ENGINES[engine]
    formula = spec.formula.name if isinstance(spec, RealEngine) else engine
    path = str(EXAMPLES / formula / "token_mean.py")
    target = parse_target(path)
    template = stack.enter_context(opened(pool, target.setup(), engine=engine))
    request = Request(path, modes=("token_mean",), engine=engine)
    return subjects(request, target, template.description)[0], Executor(template)


def seconds(run: tuple[Subject, Executor], cases: Sequence[Case], together: int) -> float:
    """Of one case, where so many of them are run together."""
    subject, executor = run
    start = time.perf_counter()
    for n in range(0, len(cases), together):
        for done in executor.run(subject, cases[n : n + together]):
            assert done.failure is None, done.failure
    return (time.perf_counter() - start) / len(cases)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    usable = [name for name in NAMES if ENGINES[name].available() is None]
    print("milliseconds of a case, and beside its formula's")
    print(f"{'ranks':>5}  {'engine':<10} {'one by one':>18} {'together':>18}")
    with Pool(LIMITS) as pool, ExitStack() as stack:
        formulas = {name: ENGINES[name].formula.name for name in usable}  # type: ignore[attr-defined]
        names = dict.fromkeys((*formulas.values(), *usable))
        runs = {name: executor(name, pool, stack) for name in names}
        for dp, cp, k in SIZES:
            cases = [grid_case(seed, dp, cp, k, "zigzag", "float64") for seed in range(count)]
            fastest = {(name, n): float("inf") for name in runs for n in (1, count)}
            for run in runs.values():
                seconds(run, cases[:2], 1)  # the first of a world of this size
            for _ in range(ROUNDS):
                for name, n in fastest:
                    fastest[name, n] = min(fastest[name, n], seconds(runs[name], cases, n))
            for name in runs:
                cells = [f"{dp * cp:>5}  {name:<10}"]
                for n in (1, count):
                    took, formula = fastest[name, n], formulas.get(name, name)
                    beside = f"{took / fastest[formula, n]:.1f} x" if name in formulas else ""
                    cells.append(f"{1000 * took:>9.2f}  {beside:>7}")
                print(" ".join(cells).rstrip())


if __name__ == "__main__":
    main()
