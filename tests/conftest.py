"""What every test may use: the command line as a person runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

# Tests never depend on how fast the machine is.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and every process it starts inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

SEEDS = range(int(os.environ.get("AGGVERIFY_SEEDS", "1")))
"""Seeds of the searches whose smallest case is pinned; ``tox -e quality`` takes twenty."""


@dataclass(frozen=True, slots=True)
class Ran:
    """Exit code and output of one command."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


Cli = Callable[..., Ran]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Run ``aggverify ARGUMENTS`` in an empty directory and wait for it."""

    def run(*arguments: str | Path, env: dict[str, str] | None = None) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "aggverify", *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"} | (env or {}),
            capture_output=True,
            text=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run
