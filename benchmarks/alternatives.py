"""The same case as ``pool.py``, run the ways one would run it without the pool.

``python benchmarks/alternatives.py WAY WORLD CASES`` prints cases per second, start not counted
except for ``spawn``, which starts for every case: ``spawn`` (``torch.multiprocessing.spawn``),
``continuous`` (PyTorch's own ``MultiProcContinuousTest``), ``simulation`` (all ranks in turn in
one process, nothing communicated: the floor).
"""

from __future__ import annotations

import os
import sys
import time
import unittest
from typing import Any

from pool import TOKENS, Case, spawn

from aggverify.world import RankPlace

MASK = "110" * (TOKENS // 3)


def spawned(world: int, cases: int) -> float:
    """Cases per second of ``mp.spawn`` per case."""
    began = time.perf_counter()
    for _ in range(cases):
        spawn(world)
    return cases / (time.perf_counter() - began)


def simulated(world: int, cases: int) -> float:
    """Cases per second when one process computes every rank's part and adds them up."""
    import torch

    torch.set_num_threads(1)
    began = time.perf_counter()
    for _ in range(cases):
        counts, gradients = [], []
        for _ in range(world):
            keep = torch.tensor([float(bit) for bit in MASK], dtype=torch.float64)
            counts.append(keep.sum())
        total = torch.stack(counts).sum()
        for _ in range(world):
            theta = torch.zeros(TOKENS, dtype=torch.float64, requires_grad=True)
            keep = torch.tensor([float(bit) for bit in MASK], dtype=torch.float64)
            ((theta * keep).sum() / total).backward()
            gradients.append(theta.grad)
        torch.stack([g for g in gradients if g is not None]).sum(0).numpy().tobytes()
    return cases / (time.perf_counter() - began)


def continuous_class() -> Any:
    """A MultiProcContinuousTest with one test: the case."""
    from torch.testing._internal.common_distributed import MultiProcContinuousTest

    class Continuous(MultiProcContinuousTest):
        world_size = int(os.environ["AGGVERIFY_WORLD"])

        @classmethod
        def backend_str(cls) -> str:
            return "gloo"

        @classmethod
        def device_type(cls) -> str:
            return "cpu"

        def test_case(self) -> None:
            case = Case({})
            case.start(RankPlace(self.rank, self.world_size, "cpu"))
            case({"what": "case", "mask": MASK, "reductions": 2, "n": 1})

    Continuous.__module__, Continuous.__qualname__ = __name__, "Continuous"
    return Continuous


if os.environ.get("AGGVERIFY_WORLD"):
    # Its processes are spawned and look for it here.
    Continuous = continuous_class()


def continuous(world: int, cases: int) -> float:
    """Cases per second of one test method run again and again."""
    result = unittest.TestResult()
    suite = unittest.TestSuite([Continuous("test_case") for _ in range(cases + 1)])
    times: list[float] = []

    class Timed(unittest.TestResult):
        def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
            times.append(time.perf_counter())
            super().stopTest(test)

    result = Timed()
    suite.run(result)
    if not result.wasSuccessful():
        sys.exit(str((result.errors + result.failures)[0][1]))
    return cases / (times[-1] - times[0])


WAYS = {"spawn": spawned, "continuous": continuous, "simulation": simulated}

if __name__ == "__main__":
    print(WAYS[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3])))
