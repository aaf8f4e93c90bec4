"""What every test may use: ranks forked from one process, and the command line."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from aggverify.cli import main
from aggverify.execution.executor import Executor
from aggverify.execution.limits import LIMITS
from aggverify.run.opening import opened
from aggverify.world import LocalLauncher, Options, Pool, Template
from tests import schemas

# Tests never depend on how fast the machine is, nor on what earlier ones have left on the disk.
settings.register_profile("untimed", deadline=None, database=None)
settings.load_profile("untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and every process it starts inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

SEEDS = range(int(os.environ.get("AGGVERIFY_SEEDS", "1")))
"""Seeds of the searches whose smallest case is pinned; ``tox -e quality`` takes twenty."""
PART = os.environ.get("AGGVERIFY_PART", "1/1")
"""K/N: the K-th of N parts of what is asked for: machines can share the exhaustive suite."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other parts, after ``-m`` and ``-k`` have left out theirs."""
    number, count = map(int, PART.split("/"))
    others = [item for n, item in enumerate(items) if n % count != number - 1]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = items[number - 1 :: count]


_WITH_ITS_OWN = Pool.__init__
_CHECK = import_module("aggverify.cli.check")
_EARLY = _CHECK._launcher


def _shared(
    self: Pool, ours: LocalLauncher, options: Options | None = None, *, launcher: Any = None
) -> None:
    """A pool that is given no launcher, or None as ``check`` does, takes ours."""
    _WITH_ITS_OWN(self, options, launcher=launcher or ours)


@pytest.fixture(scope="session", autouse=True)
def launcher() -> Iterator[LocalLauncher]:
    """The one process that imports torch for a test process; every Pool made there uses it."""
    launcher = LocalLauncher(preload=LIMITS.preload)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "__init__", functools.partialmethod(_shared, launcher))
        patch.setattr(_CHECK, "_launcher", lambda *_: contextlib.nullcontext())
        yield launcher
    launcher.close()


@pytest.fixture
def own_launchers(launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Pool has a launcher to itself, as outside of tests."""
    monkeypatch.setattr(Pool, "__init__", _WITH_ITS_OWN)
    monkeypatch.setattr(_CHECK, "_launcher", _EARLY)


@pytest.fixture(scope="session")
def shared_pool(launcher: LocalLauncher) -> Iterator[Pool]:
    """Ranks under the limits that ``aggverify check`` sets."""
    with Pool(LIMITS) as pool:
        yield pool


@pytest.fixture(scope="session")
def corpus(shared_pool: Pool) -> Iterator[Template]:
    """Ranks that have imported every reducer of the corpus."""
    with opened(shared_pool, {"module": "tests.corpus.all_shown"}) as template:
        yield template


@pytest.fixture
def executor(corpus: Template) -> Executor:
    """The corpus under test, and the corpus beside it for what compares two paths."""
    made = Executor(corpus, Executor(corpus))
    made.begin()
    return made


@dataclass(frozen=True, slots=True)
class Ran:
    """Exit code and output of one command."""

    code: int
    out: str
    err: str

    @property
    def flat(self) -> str:
        """Standard output on one line, wherever its lines were wrapped."""
        return " ".join(self.out.split())

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


Cli = Callable[..., Ran]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run ``aggverify ARGUMENTS`` in an empty directory, within this process."""

    def run(*arguments: str | Path, env: dict[str, str] | None = None) -> Ran:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
        with (
            monkeypatch.context() as patch,
            contextlib.chdir(tmp_path),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as left,
        ):
            for name, value in {"COLUMNS": "100", **(env or {})}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["aggverify", *map(str, arguments)])
            main()
        assert isinstance(left.value.code, int)
        schemas.check_folder(tmp_path)
        return Ran(left.value.code, _written(out), _written(err))

    return run


def _written(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


@pytest.fixture
def shell(tmp_path: Path) -> Cli:
    """Run ``python -m aggverify ARGUMENTS`` in an empty directory, as a person does."""

    def run(*arguments: str | Path, env: dict[str, str] | None = None) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "aggverify", *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"} | (env or {}),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run
