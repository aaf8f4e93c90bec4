"""Cases reduced together get the bits they get alone, under every engine."""

from __future__ import annotations

import pytest

from aggverify.execution.executor import Executor
from aggverify.execution.run_spec import RunSpec
from aggverify.generation.catalogue import grid, hard_cases
from aggverify.run.opening import opened
from aggverify.run.planning.claims import subjects
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import parse_target
from aggverify.world import Pool
from tests.conftest import EXAMPLES


@pytest.mark.parametrize(
    ("path", "mode", "engine"),
    [
        ("native/sum/prompt_mean.py", "prompt_mean", "sum"),
        *(pytest.param(f"native/{e.replace('-', '_')}/prompt_mean.py", "prompt_mean", e,
                       marks=pytest.mark.thorough)
          for e in ("mean", "accumulated-mean", "megatron-token", "megatron-sample")),
        ("broken/cp_shard_sample_mean.py", "sample_mean", "megatron-sample"),
    ],
)  # fmt: skip
def test_together_as_alone(shared_pool: Pool, path: str, mode: str, engine: str) -> None:
    target = parse_target(str(EXAMPLES / path))
    cases = [*hard_cases(), *grid(4, ("zigzag", "contiguous", "gathered"))]
    if path.startswith("broken"):
        cases = [c for c in cases if c.layout.cp_kind == "zigzag"]
    with opened(shared_pool, target.setup()) as template:
        request = Request(str(EXAMPLES / path), modes=(mode,), engine=engine)
        subject = subjects(request, target, template.description)[0]
        executor = Executor(template)
        together = executor.run(subject, cases)
        # A watched case has its dispatch, and its reduction, to itself.
        alone = executor.run(subject, [RunSpec(case, watch=True) for case in cases])
    assert len(cases) >= 20
    for one, other in zip(together, alone, strict=True):
        assert one.weights is not None, one.failure
        assert other.weights is not None, other.failure
        assert one.weights.tobytes() == other.weights.tobytes()
        assert (one.local_losses, one.counts) == (other.local_losses, other.counts)
