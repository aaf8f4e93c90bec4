"""One step of production size on eight ranks: seconds and memory against its tokens.

    python benchmarks/production.py [ROLLOUTS ...]

Each is what ``check --step production`` runs (512 rollouts of up to 32,768 tokens), with fewer
rollouts and with more, under the formula of an all-reduce and through torch's FSDP2: run by the
ranks, and every weight compared with the oracle's. A rank's peak is its resident memory, what it
shares with others included; the machine's is what all processes together took of it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from aggverify.checks.comparison import worst_weight
from aggverify.checks.production import GROUP, case_of
from aggverify.engines import ENGINES, RealEngine
from aggverify.execution.executor import Executor
from aggverify.execution.limits import LIMITS
from aggverify.execution.subject import Subject
from aggverify.run.opening import opened
from aggverify.run.planning.claims import subjects
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import parse_target
from aggverify.steps.case import Case
from aggverify.world import Pool

EXAMPLES = Path(__file__).parents[1] / "examples" / "native"
NAMES = ("sum", "fsdp2")
ROLLOUTS = (64, 128, 256, 512, 1024)
DP, CP, K = 4, 2, 4
GIB = 2**30


def available() -> int:
    """Bytes of the machine's memory that are free or can be freed."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("MemAvailable:")]
    return int(line.split()[1]) * 1024


class Taken:
    """The most that was taken of the machine's memory within the ``with``."""

    def __enter__(self) -> Taken:
        self._before = self._least = available()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._ends.wait(0.02):
            self._least = min(self._least, available())

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()

    @property
    def bytes(self) -> int:
        return self._before - self._least


def run(executor: Executor, subject: Subject, case: Case) -> tuple[float, int]:
    """Seconds of running and judging it, and the bytes of the rank that held most."""
    start = time.perf_counter()
    [done] = executor.run(subject, [case])
    assert done.weights is not None, done.failure
    expected = subject.expected(case.step)
    assert expected is not None
    worst = worst_weight(done.weights, expected, subject.roundings_on(case.step), case.dtype)
    assert worst is None, worst
    return time.perf_counter() - start, done.peak_bytes


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or list(ROLLOUTS)
    print(f"{os.cpu_count()} cores, {available() / GIB:.1f} GiB free; {DP * CP} ranks")
    print(f"{'engine':<7}{'rollouts':>9}{'tokens':>12}{'seconds':>9}{'us each':>9}", end="")
    print(f"{'rank GiB':>10}{'machine GiB':>13}{'bytes each':>12}")
    with Pool(LIMITS) as pool, ExitStack() as stack:
        for name in NAMES:
            spec = ENGINES[name]
            if spec.available() is not None:
                print(f"{name}: {spec.available()}")
                continue
            formula = spec.formula.name if isinstance(spec, RealEngine) else name
            path = str(EXAMPLES / formula / "token_mean.py")
            target = parse_target(path)
            template = stack.enter_context(opened(pool, target.setup(), engine=name))
            request = Request(path, modes=("token_mean",), engine=name)
            [subject] = subjects(request, target, template.description)
            executor = Executor(template)
            run(
                executor, subject, case_of(32, GROUP, DP, CP, K)
            )  # the first of a world of this size
            for rollouts in sizes:
                case = case_of(rollouts, GROUP, DP, CP, K)
                tokens = case.step.num_response_tokens
                with Taken() as taken:
                    seconds, peak = run(executor, subject, case)
                print(
                    f"{name:<7}{rollouts:>9}{tokens:>12,}{seconds:>9.1f}"
                    f"{1e6 * seconds / tokens:>9.2f}{peak / GIB:>10.2f}{taken.bytes / GIB:>13.2f}"
                    f"{taken.bytes / tokens:>12.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
