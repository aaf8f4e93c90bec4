"""The formula that stands for a real engine against that engine, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aggverify.engines import closing, engine, formulas, real, usable
from aggverify.engines.mean import MEAN
from aggverify.errors import InputError
from aggverify.generation.catalogue import grid, hard_cases
from aggverify.run.opening import loaded
from aggverify.run.planning.request import Request
from aggverify.world import Pool
from tests.conftest import EXAMPLES, Cli

THOROUGH = pytest.mark.thorough


@pytest.mark.parametrize(
    ("name", "mode", "ranks"),
    [
        pytest.param("ddp", "prompt_mean", 2, marks=pytest.mark.covers(engine="ddp")),
        pytest.param("fsdp2", "prompt_mean", 2, marks=pytest.mark.covers(engine="fsdp2")),
        pytest.param("ddp", "token_mean", 8, marks=THOROUGH),
        pytest.param("fsdp2", "token_mean", 8, marks=THOROUGH),
    ],
)
def test_the_formula_is_what_it_does(name: str, mode: str, ranks: int, shared_pool: Pool) -> None:
    """Ragged masks, empty ranks, several micro-batches, float32 and float64."""
    if (why := engine(name).available()) is not None:
        pytest.skip(why)
    request = Request(str(EXAMPLES / "native" / "mean" / f"{mode}.py"), modes=(mode,), engine=name)
    drawn = [*hard_cases(), *grid(ranks, ("zigzag",))]
    cases = [c for c in drawn if 1 < c.layout.world_size <= ranks and c.layout.cp_kind == "zigzag"]
    assert len(cases) >= 8
    assert {c.dtype for c in cases} >= {"float32", "float64"}
    with loaded(request, shared_pool) as (found, laboratory):
        [subject] = found
        laboratory.begin()
        ours = laboratory.run(replace(subject, engine=MEAN), cases)
        theirs = laboratory.run(subject, cases)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.weights is not None, mine.failure
        assert other.weights is not None, other.failure
        assert mine.weights.tolist() == other.weights.tolist()
        assert (mine.value, mine.counts, other.altered) == (other.value, other.counts, ())


@pytest.mark.exhaustive
def test_it_can_be_asked_for(cli: Cli) -> None:
    options = ("--mode", "token_mean", "--engine", "ddp", "--world", "2", "--max-examples", "2")
    path = EXAMPLES / "native" / "mean" / "token_mean.py"
    ran = cli("check", path, *options, "--profile", "quick")
    assert ran.code == 0, ran
    assert "engine      ddp (torch DistributedDataParallel itself: mean over all dp*cp" in ran.out


def test_it_is_listed_and_no_answer_to_what_a_trainer_does(cli: Cli) -> None:
    ran = cli("engines")
    assert "fsdp2\n    torch FSDP2 (fully_shard) itself: mean over all" in ran.out
    assert not {spec.name for spec in formulas()} & {"ddp", "fsdp2"}


@pytest.mark.thorough
def test_a_run_ends_with_a_few_cases_under_it(cli: Cli) -> None:
    path = EXAMPLES / "native" / "mean" / "token_mean.py"
    ran = cli("check", path, "--world", "2", "--max-examples", "2")
    assert ran.code == 0, ran
    assert "confirmed under torch FSDP2 (fully_shard) on 16 cases" in ran.out


def test_where_torch_is_too_old_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "version", lambda _: "2.6.0+cu124")
    assert closing(MEAN) is real.DDP
    assert real.DDP.available() is None
    assert real.FSDP2.available() == "it needs torch 2.7 or newer, and this is 2.6.0+cu124"
    with pytest.raises(InputError, match="engine fsdp2 cannot run here: it needs"):
        usable("fsdp2")
