"""Megatron-core's own schedule, DistributedDataParallel and ``finalize_model_grads``, from PyPI."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggverify import model
from aggverify.engines import engine
from aggverify.generation.catalogue import grid, hard_cases
from aggverify.run.opening import loaded
from aggverify.run.planning.request import Request
from aggverify.world import Pool
from tests.conftest import EXAMPLES, Cli
from tests.engines.wheels import MEGATRON_CORE, fetched

TRAINER = EXAMPLES / "trainer"


def test_a_step_that_takes_it_is_told_how_to_install_it(cli: Cli) -> None:
    told = cli("check", TRAINER / "megatron.py", "--mode", "token_mean")
    assert told.code == 2, told
    assert "No module named 'megatron.core.distributed'" in told.err
    assert "it is not installed here: pip install --no-deps megatron-core==0.16.1" in told.err


@pytest.mark.network
@pytest.mark.exhaustive  # a minute each
@pytest.mark.usefixtures("own_launchers")
@pytest.mark.parametrize("broken", [False, True])
def test_a_whole_step_of_its_own(
    broken: bool,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
    tmp_path: Path,
) -> None:
    folder = Path(pytestconfig.cache.mkdir("megatron-core"))
    monkeypatch.syspath_prepend(fetched(folder, *MEGATRON_CORE))
    brief = ("--mode", "token_mean", "--profile", "quick", "--max-examples", "4", "--world", "2")
    path = TRAINER / "broken" / "megatron.py" if broken else TRAINER / "megatron.py"
    ran = cli("check", path, *brief, "--report", "json")
    assert ran.code == broken, ran
    if broken:
        [verdict] = model.load(tmp_path / ".aggverify" / "verdict.json").verdicts
        seen = {bug.seen for f in verdict.findings for bug in f.bugs}
        assert seen == {"verl #5625 and Megatron-LM #7513 in one"}, ran


@pytest.mark.network
@pytest.mark.usefixtures("own_launchers")
@pytest.mark.parametrize(
    ("name", "formula", "mode"),
    [
        ("megatron-core-sample", "megatron-sample", "sample_mean"),
        ("megatron-core-token", "megatron-token", "token_mean"),
    ],
)
def test_the_formula_is_what_it_does(
    name: str,
    formula: str,
    mode: str,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bit for bit per sample; per token Megatron's reciprocal of an integer tensor is float32."""
    folder = Path(pytestconfig.cache.mkdir("megatron-core"))
    monkeypatch.syspath_prepend(fetched(folder, *MEGATRON_CORE))
    path = EXAMPLES / "native" / formula.replace("-", "_") / f"{mode}.py"
    drawn = [*hard_cases(), *grid(2, ("zigzag",))]
    cases = [c for c in drawn if c.layout.world_size in (1, 2) and c.layout.cp_kind == "zigzag"]
    assert {c.dtype for c in cases} >= {"float32", "float64"}
    with Pool() as pool, loaded(Request(str(path), modes=(mode,), engine=name), pool) as ready:
        [[subject], executor] = ready
        executor.begin()
        ours = executor.run(replace(subject, engine=engine(formula)), cases)
        theirs = executor.run(subject, cases)
    near = 2.0**-24 if subject.engine.takes_counts else 0.0
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.weights is not None, mine.failure
        assert other.weights is not None, other.failure
        assert (np.abs(mine.weights - other.weights) <= near * np.abs(mine.weights)).all()
        assert (mine.value, mine.counts, other.altered) == (other.value, other.counts, ())
