"""The exact scalar of a large step in every mode, beside one plain numpy float64 sum.

python benchmarks/exact_sums.py [ROLLOUTS] [TOKENS_EACH]
"""

from __future__ import annotations

import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from aggverify import oracles
from aggverify.oracles import MODES, Sample, Step
from aggverify.oracles.exact import exact_dot

DTYPES = ("float64", "float32", "float16", "bfloat16")
TIMES = 5


def seconds(*works: Callable[[], object]) -> list[float]:
    """Median wall time of each, measured in turn, so that a busy moment meets all of them."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(TIMES):
        for times, work in zip(taken, works, strict=True):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in taken]


def beyond_input(work: Callable[[], object]) -> float:
    """MiB allocated at the worst moment, on top of what was there."""
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 2**20


def ragged_step(rollouts: int, tokens: int, rng: np.random.Generator) -> Step:
    """Prompt groups of eight, one token in ten masked."""
    masks = (rng.random((rollouts, tokens)) < 0.9).astype(np.uint8)
    return Step(tuple(Sample(64, masks[r].tobytes(), r, r // 8) for r in range(rollouts)))


def of_dtype(values: np.ndarray, dtype: str) -> np.ndarray:
    """The values in a dtype; bfloat16 as bit patterns."""
    if dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype)


def main() -> None:
    """Print one line per dtype: time of the plain sum, of the exact scalars, ratio, memory."""
    rollouts = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    tokens = int(sys.argv[2]) if len(sys.argv) > 2 else 32768
    rng = np.random.default_rng(0)
    step = ragged_step(rollouts, tokens, rng)
    values = rng.standard_normal(rollouts * tokens)
    print(f"{values.size} tokens, {rollouts} rollouts, {len(MODES)} modes")
    for dtype in DTYPES:
        losses = of_dtype(values, dtype)

        def all_modes(losses: np.ndarray = losses, dtype: str = dtype) -> object:
            return oracles.scalars(MODES, step, losses, divisor=16, dtype=dtype)

        plain, exact = seconds(values.sum, all_modes)
        print(
            f"{dtype:9} plain float64 sum {plain * 1e3:5.1f} ms, exact scalars "
            f"{exact * 1e3:6.1f} ms = {exact / plain:4.1f} x, "
            f"{beyond_input(all_modes):4.0f} MiB more"
        )
    plain, product = seconds(values.sum, lambda: exact_dot(values, values))
    print(f"float64   exact dot product {product * 1e3:.1f} ms = {product / plain:.1f} x")


if __name__ == "__main__":
    main()
