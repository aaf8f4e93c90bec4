"""``aggverify --version`` names what a bug report needs, and imports no torch."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from aggverify import __version__
from aggverify.cli import versions

FIRST = [f"aggverify {__version__}", f"Python {platform.python_version()}"]
NO_CUDA, CUDA = ("2.9.0+cpu", None), ("2.9.0", "12.8")


def test_it_is_what_is_installed() -> None:
    code = (
        "import sys; from aggverify.cli import main\n"
        "try: main()\nfinally: assert 'torch' not in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[:2] == FIRST
    assert ran.stdout.splitlines()[2].startswith(f"torch {version('torch')}")


@pytest.mark.parametrize(
    ("build", "gpus", "lines"),
    [
        (
            NO_CUDA,
            1,
            ["torch 2.9.0+cpu", "backends gloo (not nccl and cuda+gloo: torch is a CPU build)"],
        ),
        (
            CUDA,
            0,
            [
                "torch 2.9.0, CUDA 12.8, GPUs: 0",
                "backends gloo (not nccl and cuda+gloo: no NVIDIA driver)",
            ],
        ),
        (CUDA, 2, ["torch 2.9.0, CUDA 12.8, GPUs: 2", "backends gloo, nccl, cuda+gloo"]),
    ],
)
def test_backends_follow_the_build_and_the_driver(
    build: tuple[str, str | None],
    gpus: int,
    lines: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for n in range(gpus):
        (tmp_path / "gpus" / f"0000:0{n}:00.0").mkdir(parents=True)
    monkeypatch.setattr(versions, "_GPUS", tmp_path / "gpus")
    monkeypatch.setattr(versions, "torch_build", lambda: build)
    assert versions.versions() == [*FIRST, *lines]
