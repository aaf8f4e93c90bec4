"""How cost grows: one case from 10^3 to 10^6 response tokens, and 100 to 1600 usual cases.

``python benchmarks/scaling.py [--json FILE]``. A case is written as JSON, run by four ranks (two
data-parallel, two context-parallel), and every weight is compared with the oracle's.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from aggverify.checks.comparison import worst_weight
from aggverify.execution.executor import Executor
from aggverify.execution.limits import LIMITS
from aggverify.execution.subject import Subject
from aggverify.generation.building import GRID
from aggverify.oracles import Sample, Step
from aggverify.run.opening import opened
from aggverify.run.planning.claims import subjects
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import parse_target
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.world import Pool

EXAMPLE = Path(__file__).parents[1] / "examples" / "native" / "sum" / "prompt_mean.py"
TOKENS = (1_000, 10_000, 100_000, 1_000_000)
CASES = (100, 200, 400, 800, 1600)
SAMPLES = 20


def case_of(tokens: int, rng: np.random.Generator) -> Case:
    """Ragged masks over equal lengths, losses on the grid."""
    each = tokens // SAMPLES
    masks = (rng.random((SAMPLES, each)) < 0.9).astype(np.uint8)
    step = Step(tuple(Sample(8, masks[i].tobytes(), i, i // 4) for i in range(SAMPLES)))
    losses = (rng.integers(-GRID, GRID, step.num_response_tokens) / GRID).tolist()
    half = SAMPLES // 2
    layout = Layout(((tuple(range(half)),), (tuple(range(half, SAMPLES)),)), 2)
    return Case(step, layout, tuple(losses))


def seconds(executor: Executor, subject: Subject, cases: list[Case]) -> float:
    """Wall time of running and judging these cases."""
    began = time.perf_counter()
    for execution in executor.run(subject, cases):
        expected = subject.expected(execution.case.step)
        assert execution.weights is not None, execution.failure
        assert expected is not None
        assert worst_weight(execution.weights, expected, subject.roundings_on(), "float64") is None
    return time.perf_counter() - began


def main() -> None:
    """Print seconds per size, and per token or case."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", type=Path, help="also write the figures there")
    path = options.parse_args().json
    figures: dict[str, list[tuple[int, float]]] = {"tokens": [], "cases": []}
    target = parse_target(str(EXAMPLE))
    rng = np.random.default_rng(0)
    with Pool(LIMITS) as pool, opened(pool, target.setup()) as template:
        request = Request(str(EXAMPLE), modes=("prompt_mean",))
        subject = subjects(request, target, template.description)[0]
        executor = Executor(template)
        seconds(executor, subject, [case_of(1000, rng)] * 4)
        for tokens in TOKENS:
            taken = seconds(executor, subject, [case_of(tokens, rng)])
            figures["tokens"].append((tokens, taken))
            print(f"{tokens:8} tokens: {taken:6.3f} s = {1e6 * taken / tokens:5.2f} us each")
        for cases in CASES:
            taken = seconds(executor, subject, [case_of(40, rng) for _ in range(cases)])
            figures["cases"].append((cases, taken))
            print(f"{cases:8} cases:  {taken:6.3f} s = {1e3 * taken / cases:5.2f} ms each")
    if path:
        path.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
