"""The ``mean`` engine against torch's own DistributedDataParallel, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aggverify.engines import engine
from aggverify.execution.laboratory import Laboratory
from aggverify.generation.catalogue import hard_cases
from aggverify.run.planning.claims import subjects
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import parse_target
from aggverify.run.session import HANDLER
from aggverify.world import Pool, Template
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
        template = pool.template(HANDLER, {"target": target.setup()}, paths=[str(ROOT)])
        assert isinstance(template, Template)
        request = Request(str(path), modes=(mode,), engine="mean")
        subject = subjects(request, target, template.description)[0]
        laboratory = Laboratory(template)
        ours = laboratory.run(subject, cases)
        real = replace(subject, engine=engine("tests.engines.ddp:DDP"))
        theirs = laboratory.run(real, cases)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.weights is not None, mine.failure
        assert other.weights is not None, other.failure
        assert mine.weights.tolist() == other.weights.tolist()
        assert (mine.value, mine.counts, other.altered) == (other.value, other.counts, ())
