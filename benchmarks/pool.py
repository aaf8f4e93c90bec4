"""How fast the rank pool is, beside what one would write instead; all measured in one run.

Run ``python benchmarks/pool.py`` (a minute; ``--quick`` for a few seconds). Nothing else should
use the machine. A *case* is one backward pass over 30 tokens and one or two all-reduces.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aggverify.run.opening import frozen
from aggverify.world import Fault, Job, Pool, RankPlace, Replies, Template, TemplateFailure

TOKENS = 30
WORLDS = (1, 2, 4, 8)
BATCH = 16
MINE = str(Path(__file__).resolve().parent)
FIGURES: dict[str, float] = {}


class UnderWay:
    """Gradients that are being reduced."""

    def __init__(self, rank: int, flat: Any, work: Any) -> None:
        self.rank, self.flat, self.work = rank, flat, work

    @property
    def arrived(self) -> bool:
        return bool(self.work.is_completed())

    def answers(self) -> list[tuple[dict[str, Any], bytes]]:
        """One blob per case, from rank 0."""
        self.work.wait()
        parts = self.flat.split(TOKENS)
        return [({}, part.numpy().tobytes() if self.rank == 0 else b"") for part in parts]


class Case:
    """Handler: ``n`` cases per job, the whole of each or its collectives alone."""

    def __init__(self, setup: dict[str, Any]) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist

    def describe(self) -> dict[str, Any]:
        return {}

    def start(self, place: RankPlace) -> None:
        self.rank, self.size = place.rank, place.size

    def __call__(self, job: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        began = time.perf_counter()
        blob = b""
        if job["what"] == "hang" and self.rank == 0:
            time.sleep(3600)
        for _ in range(job["n"]):
            if job["what"] != "collectives":
                blob = self.case(job["mask"], job["reductions"])
            else:
                self.collectives(job["reductions"])
        return {"seconds": time.perf_counter() - began}, blob if self.rank == 0 else b""

    def together(self, jobs: list[dict[str, Any]], between: Callable[[], None]) -> UnderWay:
        """Single cases with one reduction of all gradients, as the product runs them."""
        gradients = []
        for job in jobs:
            gradients.append(self.local(job["mask"], job["reductions"]))
            between()
        flat = self.torch.cat(gradients)
        return UnderWay(self.rank, flat, self.dist.all_reduce(flat, async_op=True))

    def case(self, mask: str, reductions: int) -> bytes:
        gradient = self.local(mask, reductions)
        self.dist.all_reduce(gradient)
        blob: bytes = gradient.numpy().tobytes()
        return blob

    def local(self, mask: str, reductions: int) -> Any:
        torch, dist = self.torch, self.dist
        theta = torch.zeros(TOKENS, dtype=torch.float64, requires_grad=True)
        keep = torch.tensor([float(bit) for bit in mask], dtype=torch.float64)
        count = keep.sum()
        if reductions > 1:
            dist.all_reduce(count)
        ((theta * keep).sum() / count).backward()
        return theta.grad

    def collectives(self, reductions: int) -> None:
        if reductions > 1:
            self.dist.all_reduce(self.torch.ones((), dtype=self.torch.float64))
        self.dist.all_reduce(self.torch.zeros(TOKENS, dtype=self.torch.float64))


def main() -> None:
    """Print every figure."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer repetitions")
    options.add_argument("--memory", action="store_true", help="only the memory of all ranks")
    options.add_argument("--json", type=Path, help="also write the figures there")
    chosen = options.parse_args()
    quick = chosen.quick
    if chosen.memory:
        with Pool() as pool:
            checked(opened(pool).run([job(world, "case", 2) for world in WORLDS]))
            report_memory()
        return
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    report_start()
    with Pool() as pool:
        template = opened(pool)
        with frozen():  # as the product does
            report_speed(template, 0.5 if quick else 3.0)
        report_memory()
        report_recovery(template)
        report_detection(template)
    report_alternatives(quick)
    if chosen.json:
        chosen.json.write_text(json.dumps(FIGURES))


def opened(pool: Pool) -> Template:
    template = pool.template("pool:Case", {}, paths=[MINE])
    if isinstance(template, TemplateFailure):
        sys.exit(f"{template.message}\n{template.traceback}")
    return template


def job(world: int, what: str, reductions: int, n: int = 1, together: bool = False) -> Job:
    payload = {"what": what, "mask": "110" * (TOKENS // 3), "reductions": reductions, "n": n}
    return Job(world, payload, cpu_seconds=60, together=together)


def report_start() -> None:
    imports, pools = [], []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        imports.append(time.perf_counter() - began)
        began = time.perf_counter()
        with Pool() as pool:
            pool.template("pool:Case", {}, paths=[MINE])
            pools.append(time.perf_counter() - began)
    one, other = statistics.median(imports), statistics.median(pools)
    print(f"import torch {one:.2f} s; pool with a handler {other:.2f} s = {other / one:.2f} x")
    FIGURES["start"] = other / one


def report_speed(template: Template, seconds: float) -> None:
    print("cases per second, and beside what their bare collectives allow, one by one in a loop")
    for reductions in (1, 2):
        for world in WORLDS:
            shared, alone, bare = measure(template, world, reductions, seconds)
            print(
                f"  world {world}, {reductions} reductions: {shared:6.0f} = {shared / bare:4.0%}"
                f"   one dispatch each {alone:6.0f} = {alone / bare:4.0%}   bare {bare:6.0f}"
            )
            FIGURES[f"share {world} {reductions}"] = shared / bare
            if reductions == 2:
                FIGURES[f"pool {world}"] = shared
                FIGURES[f"bare {world}"] = bare
    mixed = [job(world, "case", 2, together=True) for world in WORLDS for _ in range(BATCH)]
    print(f"  worlds 1, 2, 4, 8 mixed evenly, 2 reductions: {rate(template, mixed, seconds):.0f}")


def measure(
    template: Template, world: int, reductions: int, seconds: float
) -> tuple[float, float, float]:
    """Cases per second: sharing dispatches, each its own, and collectives alone in a loop."""
    shared = rate(template, [job(world, "case", reductions, together=True)] * BATCH, seconds)
    alone = rate(template, [job(world, "case", reductions)] * BATCH, seconds)
    n = max(20, int(alone * seconds / 3))
    return shared, alone, n / loop(template, job(world, "collectives", reductions, n))


def rate(template: Template, jobs: list[Job], seconds: float) -> float:
    checked(template.run(jobs))
    done, began = 0, time.perf_counter()
    # Two batches under way, as the product does: ranks never wait for the parent.
    pending = template.submit(jobs)
    while time.perf_counter() - began < seconds:
        following = template.submit(jobs)
        checked(pending.wait())
        done, pending = done + len(jobs), following
    checked(pending.wait())
    return (done + len(jobs)) / (time.perf_counter() - began)


def loop(template: Template, one: Job) -> float:
    """Seconds the slowest rank needed for the job's own loop."""
    (replies,) = checked(template.run([one]))
    return max(float(reply.data["seconds"]) for reply in replies.replies)


def checked(outcomes: list[Any]) -> list[Replies]:
    for outcome in outcomes:
        if not isinstance(outcome, Replies):
            sys.exit(f"a case failed: {outcome}")
    return outcomes


def report_recovery(template: Template) -> None:
    for world in WORLDS:
        times = []
        for _ in range(5):
            template.restart_worlds()
            began = time.perf_counter()
            template.run([job(world, "case", 1)])
            times.append(time.perf_counter() - began)
        print(
            f"fresh world of {world}: {1000 * statistics.median(times):.0f} ms to its first answer"
        )


def report_memory() -> None:
    """Proportional set size of all processes below this one."""
    total, count, todo = 0, 0, [os.getpid()]
    while todo:
        task = Path(f"/proc/{todo.pop()}")
        below = [int(p) for f in task.glob("task/*/children") for p in f.read_text().split()]
        todo += below
        for pid in below:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += sum(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:")
            count += 1
    print(f"memory of {count} processes (worlds 1, 2, 4, 8, template, launcher): {total >> 10} MiB")
    FIGURES["memory"] = total / 1024


def report_detection(template: Template) -> None:
    """A rank that sleeps for good while the others wait for it."""
    for world in WORLDS[1:]:
        times = []
        for _ in range(3):
            checked(template.run([job(world, "case", 1)]))
            began = time.perf_counter()
            (outcome,) = template.run([job(world, "hang", 1)])
            times.append(time.perf_counter() - began)
            assert isinstance(outcome, Fault), outcome
        middle = statistics.median(times)
        print(f"hang at a world of {world}: found after {1000 * middle:.0f} ms")
        FIGURES[f"hang {world}"] = middle


def report_alternatives(quick: bool) -> None:
    """What one would write instead, each in an interpreter of its own."""
    cases = {"spawn": 1 if quick else 2, "continuous": 50 if quick else 300, "simulation": 500}
    for way, count in cases.items():
        for world in WORLDS[1:]:
            done = subprocess.run(
                [sys.executable, "alternatives.py", way, str(world), str(count)],
                check=True,
                cwd=MINE,
                capture_output=True,
                text=True,
                env=os.environ | {"AGGVERIFY_WORLD": str(world)} if way == "continuous" else None,
            )
            each = float(done.stdout.split()[-1])
            times = FIGURES[f"pool {world}"] / each
            print(f"{way}, world {world}: {each:.2f} cases per second; the pool {times:.1f} x")
            FIGURES[f"{way} {world}"] = each


def spawn(world: int) -> None:
    """One case in spawned processes."""
    import tempfile

    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(spawned, args=(world, f"{folder}/store"), nprocs=world)


def spawned(rank: int, world: int, store: str) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    case = Case({})
    case.start(RankPlace(rank, world, "cpu"))
    case({"what": "case", "mask": "110" * (TOKENS // 3), "reductions": 2, "n": 1})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
