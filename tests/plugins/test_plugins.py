"""A framework ships its own convention, engine, mode, check and report in its own package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

import aggverify
from aggverify import plugins
from aggverify.checks import check, registered
from aggverify.conventions import CONVENTIONS, convention
from aggverify.engines import ENGINES
from aggverify.errors import InputError
from aggverify.execution.executor import Executor
from aggverify.generation.catalogue import plain_losses
from aggverify.oracles import MODES, NAMES
from aggverify.plugins import PluginWarning
from aggverify.report.formats import FORMATS
from aggverify.run.opening import opened, resolved
from aggverify.run.planning.request import requested
from aggverify.run.planning.target import parse_target
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from tests.conftest import ROOT

HERE = Path(__file__).parent
ENTRIES = """[aggverify.conventions]
house = house_pkg:CONVENTION
[aggverify.engines]
house-mean = house_pkg:ENGINE
[aggverify.modes]
house_half = house_pkg:HALF
[aggverify.checks]
house_weights_are_small = house_pkg:CHECK
[aggverify.reports]
house = house_pkg:REPORT
"""
BROKEN = """[aggverify.conventions]
gone = house_pkg.nowhere:CONVENTION
slime = house_pkg:CONVENTION
[aggverify.engines]
other = house_pkg:ENGINE
number = house_pkg:render
"""
LOSS = """
import torch

def house_loss(row, keep, house_tokens, ranks):
    return torch.where(keep, row, 0.0).sum() / (2 * max(house_tokens, 1)) * ranks
"""


def install(folder: Path, entries: str, name: str = "house_pkg") -> Path:
    """What pip would leave there of a wheel."""
    shutil.copy(HERE / "house.py", folder / "house_pkg.py")
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(entries)
    return folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of packages that this process sees, and forgets again."""
    where = tmp_path / "site"
    where.mkdir()
    plugins.forget()
    modes, names = dict(MODES), dict(NAMES)
    monkeypatch.syspath_prepend(str(where))
    with registered():
        yield where
    plugins.forget()
    sys.modules.pop("house_pkg", None)
    for name in MODES.keys() - modes.keys():
        del MODES[name]
    assert dict(NAMES) == names


def test_what_a_package_brings_is_used_in_ranks_too(
    site: Path, tmp_path: Path, shared_pool: aggverify.Pool
) -> None:
    install(site, ENTRIES)
    path = tmp_path / "loss.py"
    path.write_text(LOSS)
    target = parse_target(str(path))
    request = requested(str(path), {"mode": ("house_half",)}, {})
    step = parse_step("1/1 1/101")
    case = Case(step, Layout((((0,),), ((1,),))), plain_losses(step))
    with opened(shared_pool, target.setup(), [str(site)]) as template:
        [subject] = resolved(request, target, template)
        [ran] = Executor(template).run(subject, [case])
    assert (subject.convention.name, subject.engine.name) == ("house", "house-mean")
    assert subject.expected(step) == tuple(Fraction(bit, 6) for bit in (1, 1, 0, 1))
    assert ran.weights is not None and ran.weights.tolist() == [1 / 6, 1 / 6, 0.0, 1 / 6]
    assert check("house_weights_are_small").judge(subject, [ran]) is None
    assert list(FORMATS)[-1] == "house"


def test_what_cannot_be_used_is_named_and_left_out(site: Path) -> None:
    install(site, BROKEN)
    with pytest.warns(PluginWarning) as told:
        assert list(CONVENTIONS) == list(CONVENTIONS.own)
        assert list(ENGINES) == list(ENGINES.own)
    texts = sorted(str(one.message) for one in told)
    assert texts == [
        "aggverify.conventions 'gone' of house_pkg is left out: ModuleNotFoundError: No module "
        "named 'house_pkg.nowhere'; 'house_pkg' is not a package",
        "aggverify.conventions 'slime' of house_pkg is left out: it is named 'house'",
        "aggverify.engines 'number' of house_pkg is left out: it is no EngineSpec",
        "aggverify.engines 'other' of house_pkg is left out: it is named 'house-mean'",
    ]
    with pytest.raises(InputError, match="unknown convention 'gone'"):
        convention("gone")


def test_a_name_in_use_is_not_taken(site: Path) -> None:
    install(site, "[aggverify.modes]\nhouse_half = house_pkg:HALF\n")
    install(site, "[aggverify.modes]\nhouse_half = house_pkg:HALF\n", "second")
    with pytest.warns(PluginWarning, match="is left out: that name is in use"):
        requested("r.py", {}, {})
    assert MODES["house_half"].formula == "sum l*m / (2 * M_step)"


def test_the_tools_own_are_found_without_a_look_at_packages(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(group: str) -> list[object]:
        raise AssertionError(group)

    monkeypatch.setattr(plugins, "_entries", look)
    assert convention("slime").name == "slime"
    assert ENGINES["sum"].name == "sum"
    assert FORMATS["md"].file == "summary.md"


def run(folder: Path, site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``aggverify ARGUMENTS`` beside the packages in a directory."""
    path = os.pathsep.join((str(site), str(ROOT)))
    return subprocess.run(
        [sys.executable, "-m", "aggverify", *arguments],
        cwd=folder, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip


@pytest.mark.thorough
def test_from_check_to_replay(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    site = install(tmp_path / "site", ENTRIES)
    install(site, BROKEN, "broken_pkg")
    (tmp_path / "loss.py").write_text(LOSS)
    brief = ["--profile", "quick", "--max-examples", "2", "--world", "2", "--report", "json,house"]
    right = run(tmp_path, site, "check", "loss.py", *brief)
    assert right.returncode == 0, right.stdout + right.stderr
    assert (tmp_path / ".aggverify" / "house.txt").read_text() == "house:house_half:good"
    assert "aggverify: warning: aggverify.conventions 'gone' of broken_pkg is" in right.stderr
    (tmp_path / "loss.py").write_text(LOSS.replace("house_tokens, 1", "int(keep.sum()), 1"))
    wrong = run(tmp_path, site, "check", "loss.py", "--mode", "house_half", *brief)
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    [verdict] = json.loads((tmp_path / ".aggverify" / "verdict.json").read_text())["verdicts"]
    case = verdict["findings"][0]["id"]
    assert run(tmp_path, site, "replay", case).returncode == 1
    (tmp_path / "loss.py").write_text(LOSS)
    fixed = run(tmp_path, site, "replay", case)
    assert (fixed.returncode, "FIXED" in fixed.stdout) == (0, True), fixed.stdout + fixed.stderr
    (tmp_path / "loss.py").write_text(LOSS.replace("/ (2", "* (2"))
    big = run(tmp_path, site, "check", "loss.py", "--mode", "house_half", *brief)
    assert "AGV950" in big.stdout
    assert "House has no use for it" in run(tmp_path, site, "explain", "AGV950").stdout
    assert "house_half" in run(tmp_path, site, "modes").stdout
    assert "as House does" in run(tmp_path, site, "engines").stdout
    rendered = run(tmp_path, site, "render", ".aggverify/verdict.json", "--format", "house")
    assert rendered.stdout == "house:house_half:bad"
