"""A pool per pytest-xdist worker, or one for all: ``python benchmarks/workers.py``.

The same steps of a reducer, once through one pool and once halved between two processes with a
pool each. One pool shared by several workers could at best do what one pool does alone. On two
cores that others kept busy as well, two pools did 1.0 to 1.7 times as much: sharing one would add a
broker and gain nothing.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CASES = 600
ROUNDS = 3


def work(count: int, world: int) -> None:
    """Run so many cases and leave; told to start and telling when ready, by a line each."""
    from aggverify.execution.executor import Executor
    from aggverify.execution.limits import LIMITS
    from aggverify.run.opening import opened
    from aggverify.run.planning.claims import subjects
    from aggverify.run.planning.request import Request
    from aggverify.run.planning.target import parse_target
    from aggverify.steps.case import Case
    from aggverify.steps.layouts import Layout
    from aggverify.steps.notation import parse_step
    from aggverify.world import Pool

    target = parse_target(str(ROOT / "examples" / "native" / "sum" / "token_mean.py"))
    with Pool(LIMITS) as pool, opened(pool, target.setup()) as template:
        [subject] = subjects(Request(target.text), target, template.description)
        executor = Executor(template)
        step = parse_step("; ".join(["1/11011"] * world))
        layout = Layout(tuple(((i,),) for i in range(world)))
        values = [tuple((n + t) / 16 for t in range(5 * world)) for n in range(count)]
        cases = [Case(step, layout, losses, "float64") for losses in values]
        executor.run(subject, cases[:8])
        print("ready", flush=True)
        sys.stdin.readline()
        assert all(e.failure is None for e in executor.run(subject, cases))
        print("done", flush=True)
        sys.stdin.readline()


def rate(processes: int, world: int) -> float:
    """Cases per second of all processes together."""
    command = [sys.executable, __file__, str(CASES // processes), str(world)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    lines: list[str] = []

    def everywhere() -> None:
        lines.extend(p.stdout.readline().strip() for p in running if p.stdout)

    def go() -> None:
        for p in running:
            assert p.stdin
            p.stdin.write("\n")
            p.stdin.flush()

    everywhere()
    began = time.perf_counter()
    go()
    everywhere()
    taken = time.perf_counter() - began
    for p in running:
        p.communicate("\n")
    assert lines == ["ready"] * processes + ["done"] * processes, lines
    return CASES / taken


def main() -> None:
    """One line per world size; rounds alternate, the best of each is told."""
    for world in (1, 2, 4, 8):
        one, two = (max(rates) for rates in zip(*(
            (rate(1, world), rate(2, world)) for _ in range(ROUNDS)), strict=True))  # fmt: skip
        print(
            f"world {world}: one pool {one:.0f} cases per second, two workers with a pool each "
            f"{two:.0f} = {two / one:.2f} x",
            flush=True,
        )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        work(int(sys.argv[1]), int(sys.argv[2]))
    else:
        main()
