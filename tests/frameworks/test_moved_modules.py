"""What the conventions of miles use is found wherever a version of it keeps it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aggverify.conventions.shipped import _homes, _miles

UTILS = Path("miles", "backends", "training_utils")
CORE = "def get_sum_of_sample_mean():\n    return __name__\n"
LOSSES = "get_log_probs_and_entropy = None\n"
LOGS = "def aggregate_train_losses():\n    return __name__\n"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A miles of this test's own, without the stand-ins of others."""
    kept = {name: it for name, it in sys.modules.items() if f"{name}.".startswith("miles.")}
    for name in kept:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    _homes.home.cache_clear()
    yield
    _homes.home.cache_clear()
    for name in [name for name in sys.modules if f"{name}.".startswith("miles.")]:
        del sys.modules[name]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / UTILS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("core", "logs", "losses"),
    [
        ("cp_utils", "log_utils", "loss_hub.losses"),
        ("data.context_parallel", "metrics.log_utils", "loss.hub.losses"),
    ],
)
def test_both_places_are_found(tmp_path: Path, core: str, logs: str, losses: str) -> None:
    names = (f"{one.replace('.', '/')}.py" for one in (core, logs, losses))
    write(tmp_path, dict(zip(names, (CORE, LOGS, LOSSES), strict=True)))
    assert _miles.losses_module().__name__ == f"{_miles.UTILS}.{losses}"
    assert _miles.core()() == f"{_miles.UTILS}.{core}"
    assert _miles.merger()() == f"{_miles.UTILS}.{logs}"


def test_a_version_that_merges_no_logs_has_no_merger(tmp_path: Path) -> None:
    write(tmp_path, {"cp_utils.py": CORE, "log_utils.py": ""})
    assert _miles.merger() is None


def test_a_place_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"data/context_parallel.py": "import no_such_package\n", "cp_utils.py": CORE})
    with pytest.raises(LookupError, match=r"data\.context_parallel cannot be imported: .*no_such"):
        _miles.core()
