"""The ``mean`` engine against torch's own DistributedDataParallel, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aggverify.execution.laboratory import Laboratory
from aggverify.generation.catalogue import hard_cases
from aggverify.run.planning.claims import subjects
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import parse_target
from aggverify.world import Job, Pool, Replies, Template
from tests.conftest import EXAMPLES, ROOT

MEAN = EXAMPLES / "native" / "mean"


@pytest.mark.parametrize(
    "mode", ["prompt_mean", pytest.param("token_mean", marks=pytest.mark.thorough)]
)
def test_mean_is_what_ddp_does(mode: str) -> None:
    path = MEAN / f"{mode}.py"
    target = parse_target(str(path))
    cases = [c for c in hard_cases() if 1 < c.layout.world_size <= 4]
    cases = [c for c in cases if c.layout.cp_kind == "zigzag"]
    assert len(cases) >= 8
    with Pool() as pool:
        template = pool.template("aggverify.trainer.training:Trainer", {"target": target.setup()})
        assert isinstance(template, Template)
        request = Request(str(path), modes=(mode,), engine="mean")
        subject = subjects(request, target, template.description)[0]
        ours = Laboratory(template).run(subject, cases)
        real = pool.template(
            "tests.engines.ddp:DdpTrainer", {"target": target.setup()}, paths=[str(ROOT)]
        )
        assert isinstance(real, Template)
        theirs = real.run([Job(c.layout.world_size, _payload(c, mode)) for c in cases])
    for mine, outcome in zip(ours, theirs, strict=True):
        assert isinstance(outcome, Replies), outcome
        gradient = np.frombuffer(outcome.replies[0].blob, dtype=np.float64)
        assert mine.weights is not None
        assert mine.weights.tolist() == gradient.tolist()


def _payload(case: Any, mode: str) -> dict[str, Any]:
    return {
        "case": case.packed(),
        "function": "reduce",
        "convention": "native",
        "engine": "mean",
        "mode": mode,
        "divisor": None,
    }
