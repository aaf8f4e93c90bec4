"""accelerate's own accumulation and DeepSpeed ZeRO, from PyPI, against the formulas that stand for
them."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.engines import RealEngine, real
from aggverify.execution.executor import Executor
from aggverify.run.opening import opened
from aggverify.world import Pool
from tests.engines.agreement import agreement, rows
from tests.engines.wheels import ACCELERATE, DEEPSPEED, installed


@pytest.mark.network
@pytest.mark.usefixtures("own_launchers")
@pytest.mark.parametrize(
    ("spec", "packages", "exactly"),
    [
        (real.ACCELERATE, ACCELERATE, True),
        (real.DEEPSPEED_2, DEEPSPEED, False),
        (real.DEEPSPEED_ZERO_3, DEEPSPEED, False),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_the_formula_is_what_it_does(
    spec: RealEngine,
    packages: tuple[str, ...],
    exactly: bool,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bit for bit, or as near as DeepSpeed's float32 gradients are."""
    folder = Path(pytestconfig.cache.mkdir(spec.package))
    monkeypatch.syspath_prepend(installed(folder, *packages))
    assert spec.available() is None
    wanted = spec.formula.name, "native", "token_mean"
    [row] = (r for r in rows() if (r.formula, r.convention, r.mode) == wanted)
    cases = [case for case in row.cases() if case.layout.world_size <= 2]
    setup = {row.setup[0]: row.setup[1]}
    with Pool() as pool, opened(pool, setup, engine=spec.name) as template:
        found = agreement(row.subject, spec, Executor(template), cases)
    assert found.cases == len(cases) >= 8
    assert (found.exactly == len(cases)) == exactly
