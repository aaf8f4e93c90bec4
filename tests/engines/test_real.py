"""The formula that stands for a real engine against that engine, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.engines import RealEngine, closing, engine, formulas, real, usable
from aggverify.engines.mean import MEAN
from aggverify.engines.real import DDP, FSDP2
from aggverify.engines.variants import DDP_EACH, FSDP2_EACH, VARIANTS
from aggverify.errors import InputError
from aggverify.run.opening import loaded
from aggverify.run.planning.request import Request
from aggverify.world import Pool
from tests.conftest import EXAMPLES, ROOT, Cli
from tests.engines.agreement import REAL, Agreement, agreement, label, planned, read, rows

THOROUGH = pytest.mark.thorough


ON_TWO = [
    pytest.param(e.name, 2, marks=pytest.mark.covers(engine=e.name)) for e in REAL if not e.package
]
ON_MORE = [
    pytest.param(e.name, ranks, marks=THOROUGH)
    for e, ranks in ((DDP, 8), (FSDP2, 8), (DDP_EACH, 4), (FSDP2_EACH, 4))
]


@pytest.mark.parametrize(("name", "ranks"), [*ON_TWO, *ON_MORE])
def test_the_formula_is_what_it_does(name: str, ranks: int, shared_pool: Pool) -> None:
    """Ragged masks, empty ranks, several micro-batches, float32 and float64; bit for bit where
    ranks are powers of two."""
    spec = engine(name)
    assert isinstance(spec, RealEngine)
    if (why := spec.available()) is not None:
        pytest.skip(why)
    wanted = spec.formula.name, "native", "prompt_mean"
    [row] = (r for r in rows() if (r.formula, r.convention, r.mode) == wanted)
    cases = [c for c in row.cases() if c.layout.world_size in {2, ranks}]
    assert len(cases) >= 8
    assert {c.dtype for c in cases} == {"float32", "float64"}
    request = Request(row.setup[1], modes=(row.mode,), engine=name)
    with loaded(request, shared_pool) as (_, executor):
        found = agreement(row.subject, spec, executor, cases)
    assert found == Agreement(len(cases), exactly=len(cases))


def test_the_report_has_what_is_planned_and_no_other_number_of_cases() -> None:
    found = read((ROOT / "reports" / "engines.md").read_text(encoding="utf-8"))
    assert found.keys() == planned(), "python reports/engines.py --missing"
    for row in rows():
        cases = len(row.cases())
        assert cases, row
        for spec in row.engines:
            name = row.formula, row.convention, row.mode, label(spec)
            assert found[name].cases == cases, name


@pytest.mark.exhaustive
def test_it_can_be_asked_for(cli: Cli) -> None:
    options = ("--mode", "token_mean", "--engine", "ddp", "--world", "2", "--max-examples", "2")
    path = EXAMPLES / "native" / "mean" / "token_mean.py"
    ran = cli("check", path, *options, "--profile", "quick", "-v")
    assert ran.code == 0, ran
    assert "ddp (torch DistributedDataParallel itself: mean over all dp*cp" in ran.flat


def test_it_is_listed_and_no_answer_to_what_a_trainer_does(cli: Cli) -> None:
    ran = cli("engines")
    assert "fsdp2\n    torch FSDP2 (fully_shard) itself: mean over all" in ran.out
    for spec in VARIANTS:
        assert f"    also: --engine {spec.name} ({spec.variant})\n" in ran.out
        assert engine(spec.name) is spec
    assert not {spec.name for spec in formulas()} & {"ddp", "fsdp2"}


@pytest.mark.thorough
def test_a_run_ends_with_a_few_cases_under_it(cli: Cli) -> None:
    path = EXAMPLES / "native" / "mean" / "token_mean.py"
    ran = cli("check", path, "--world", "2", "--max-examples", "2", "-v")
    assert ran.code == 0, ran
    assert "confirmed under torch FSDP2 (fully_shard) on 20 cases" in ran.flat


PACKAGED = [pytest.param(e, marks=pytest.mark.covers(engine=e.name)) for e in REAL if e.package]


@pytest.mark.parametrize("spec", PACKAGED, ids=lambda spec: spec.name)
def test_where_its_package_is_not_installed_it_is_told_how(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, spec: RealEngine
) -> None:
    installed = real._installed

    def found(package: str) -> str | None:
        return None if package == spec.package else installed(package)

    monkeypatch.setattr(real, "_installed", found)
    told = f"it needs {spec.package}, which is not installed: pip install {spec.install}"
    listed = {block.partition("\n")[0]: block for block in cli("engines").out.split("\n\n")}
    assert f"cannot run here: {told}" in listed[spec.name]
    path = EXAMPLES / "native" / "mean" / "token_mean.py"
    asked = cli("check", path, "--mode", "token_mean", "--engine", spec.name)
    assert asked.code == 2, asked
    assert f"engine {spec.name} cannot run here: {told}" in asked.err


def test_where_torch_is_too_old_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "_installed", lambda _: "2.6.0+cu124")
    assert closing(MEAN) is real.DDP
    assert real.DDP.available() is None
    assert real.FSDP2.available() == "it needs torch 2.7 or newer, and this is 2.6.0+cu124"
    assert real.FSDP2_SUM.available() == "it needs torch 2.9 or newer, and this is 2.6.0+cu124"
    with pytest.raises(InputError, match="engine fsdp2 cannot run here: it needs"):
        usable("fsdp2")


def test_what_is_installed_later_in_another_folder_is_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert real._installed("a-later-package") is None
    about = tmp_path / "a_later_package-1.5.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: a-later-package\nVersion: 1.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert real._installed("a-later-package") == "1.5"


def test_where_torch_no_longer_has_it_it_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert real.FSDP1.available() is None
    monkeypatch.setattr(real, "_torch", lambda: tmp_path)
    monkeypatch.setattr(real, "_installed", lambda _: "3.0.0")
    assert real.FSDP2.available() is None
    with pytest.raises(InputError, match=r"fsdp1 cannot run here: torch 3.0.0 no longer has it: "):
        usable("fsdp1")
