"""The exact scalar of a large step in every mode, beside one plain numpy float64 sum.

python benchmarks/exact_sums.py [ROLLOUTS] [TOKENS_EACH]
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

import oracles
from oracles import MODES, Sample, Step

DTYPES = ("float64", "float32", "float16", "bfloat16")


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """Median wall time."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    """Print one line per dtype: plain sum, exact scalars of all modes, their ratio."""
    rollouts = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    tokens = int(sys.argv[2]) if len(sys.argv) > 2 else 32768
    rng = np.random.default_rng(0)
    masks = (rng.random((rollouts, tokens)) < 0.9).astype(np.uint8)
    step = Step(tuple(Sample(64, masks[r].tobytes(), r, r // 8) for r in range(rollouts)))
    values = rng.standard_normal(rollouts * tokens)
    plain = seconds(values.sum)
    print(f"{values.size} tokens, plain float64 sum {plain * 1e3:.1f} ms")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for dtype in DTYPES:
        if dtype == "bfloat16":
            losses = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
            kind = dtype
        else:
            losses, kind = values.astype(dtype), None
        exact = seconds(
            lambda losses=losses, kind=kind: oracles.scalars(
                list(MODES), step, losses, divisor=16, dtype=kind
            )
        )
        print(f"{dtype:9} exact scalars of {len(MODES)} modes {exact * 1e3:7.1f} ms = "
              f"{exact / plain:5.1f} x the plain sum")  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"memory beyond the input: {(after - before) / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
