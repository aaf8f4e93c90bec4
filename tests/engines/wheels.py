"""Packages that only tests and reports take, out of their wheels on PyPI."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from filelock import FileLock

MEGATRON_CORE = "megatron-core", "0.16.1"


def fetched(folder: Path, package: str, release: str) -> Path:
    """The wheel's folder in that one; downloaded once, shared by all processes."""
    target = folder / release
    with FileLock(folder / "lock"):
        if not target.is_dir():
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
            subprocess.run([*command, str(folder), f"{package}=={release}"], check=True)
            [wheel] = folder.glob(f"{package.replace('-', '_')}-{release}-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(target)
    return target
