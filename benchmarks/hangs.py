"""Seconds to make a hang and an endless loop small: ``python benchmarks/hangs.py``.

The reducers hang only in steps with something particular about them. Printed: seconds until the
first failing case, until the smallest one, and how many worlds of ranks that has cost.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from aggverify.checks import Finding, check
from aggverify.execution.executor import Executor
from aggverify.execution.limits import LIMITS
from aggverify.run.opening import opened
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.planning.claims import subjects
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import parse_target
from aggverify.run.search.runner import CheckRun
from aggverify.world import Pool

PREFIX = """
import torch
import torch.distributed as dist

def reduce(losses, batch):
    kept = torch.cat(batch.local_masks)
    {fault}
    return torch.where(kept.bool(), losses, 0).sum() / max(batch.num_tokens, 1)
"""
FAULTS = {
    "a collective left out by ranks without a token": (
        "if batch.cp_size > 1 and kept.any(): dist.all_reduce(torch.ones(1), group=batch.cp_group)"
    ),
    "an endless loop with two samples on data-parallel rank 1": (
        "while batch.dp_rank == 1 and len(batch.loss_masks) > 1: pass"
    ),
}


def main() -> None:
    """One line per fault."""
    with tempfile.TemporaryDirectory() as folder, Pool(LIMITS) as pool:
        for number, (name, fault) in enumerate(FAULTS.items()):
            path = Path(folder) / f"fault_{number}.py"
            path.write_text(PREFIX.format(fault=fault))
            print(f"{name}: {shrunk(pool, path)}", flush=True)


def shrunk(pool: Pool, path: Path) -> str:
    """Run the combined check and tell how long it took."""
    target = parse_target(str(path))
    with opened(pool, target.setup()) as template:
        request = Request(str(path), modes=("token_mean",))
        subject = subjects(request, target, template.description)[0]
        combined = check("independent_of_the_combination")
        space = combined.space(subject)
        assert space is not None
        seen: Counter[str] = Counter()
        first: list[float] = []

        class Counting(CheckRun):
            def _judged(self, *args: Any) -> Finding | None:
                found = super()._judged(*args)
                if found is not None and not first:
                    first.append(time.perf_counter())
                seen["failing"] += found is not None
                seen["all"] += 1
                return found

        check_run = Counting(
            combined, subject, space, Executor(template), RunStatistics(), lambda: None
        )
        began = time.perf_counter()
        found = check_run.run(examples=200, seed=0, deadline=time.monotonic() + 5)
        taken = time.perf_counter() - began
        assert found is not None
        layout = found.case.layout
        return (
            f"first seen after {first[0] - began:.2f} s, smallest after {taken:.2f} s "
            f"({seen['failing']} of {seen['all']} cases failed): {found.code}, world of "
            f"{layout.world_size}, {found.case.step.num_response_tokens} tokens"
        )


if __name__ == "__main__":
    main()
