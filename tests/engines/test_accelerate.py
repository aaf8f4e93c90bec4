"""accelerate's own accumulation, from PyPI, against the formula that stands for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.engines.real import ACCELERATE as ENGINE
from aggverify.run.opening import loaded
from aggverify.run.planning.request import Request
from aggverify.world import Pool
from tests.engines.agreement import Agreement, agreement, rows
from tests.engines.wheels import ACCELERATE, installed


@pytest.mark.network
@pytest.mark.usefixtures("own_launchers")
def test_the_formula_is_what_it_does(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(pytestconfig.cache.mkdir("accelerate"))
    monkeypatch.syspath_prepend(installed(folder, *ACCELERATE))
    assert ENGINE.available() is None
    name, mode = ENGINE.formula.name, "token_mean"
    [row] = (r for r in rows() if (r.formula, r.convention, r.mode) == (name, "native", mode))
    cases = [case for case in row.cases() if case.layout.world_size <= 2]
    request = Request(row.setup[1], modes=(mode,), engine=ENGINE.name)
    with Pool() as pool, loaded(request, pool) as (_, laboratory):
        found = agreement(row.subject, ENGINE, laboratory, cases)
    assert found == Agreement(len(cases), exactly=len(cases))
