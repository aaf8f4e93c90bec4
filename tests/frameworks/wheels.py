"""Frameworks' released wheels, unpacked, for whoever runs their own functions."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from email import message_from_string
from pathlib import Path

from filelock import FileLock
from packaging.specifiers import SpecifierSet

PYTHONS = ("3.12", "3.13")
"""For which a wheel may be made; it is unpacked, never installed."""


def unpacked(folder: Path, package: str, version: str) -> Path:
    """Where that release's Python lies; downloaded once, shared by all workers."""
    target = folder / package / version
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / package / "lock"):
        if not target.is_dir():
            _unpack(f"{package}=={version}", target)
    return target


def newest(folder: Path, package: str) -> tuple[str, Path]:
    """The newest release that has a wheel, and where it lies."""
    with tempfile.TemporaryDirectory() as name:
        version = _downloaded(package, Path(name)).name.split("-")[1]
    return version, unpacked(folder, package, version)


def pythons(release: Path) -> SpecifierSet:
    """Those that an unpacked release is for."""
    [told] = release.glob("*.dist-info/METADATA")
    fields = message_from_string(told.read_text(encoding="utf-8"))
    return SpecifierSet(fields.get("Requires-Python") or "")


def installed(folder: Path, *packages: str) -> Path:
    """Where these packages lie, without what they take, all that is needed being among them; their
    binaries are this Python's."""
    target = folder / f"{packages[0].replace('==', '-')}-{sys.implementation.cache_tag}"
    with FileLock(folder / f"{target.name}.lock"):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=folder) as name:
                made = Path(name) / "whole"
                command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
                subprocess.run([*command, "--target", str(made), *packages], check=True)
                made.rename(target)
    return target


def _unpack(what: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        wheel, whole = _downloaded(what, Path(name)), Path(name) / "whole"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(whole)
        for kept in whole.glob("*.data/purelib/*"):
            kept.rename(whole / kept.name)
        whole.rename(target)


def _downloaded(what: str, into: Path) -> Path:
    told = ""
    for python in PYTHONS:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--python-version", python, "--dest", str(into), what]
        told = subprocess.run(command, capture_output=True, text=True).stderr
        if found := list(into.glob("*.whl")):
            return found[0]
    raise LookupError(f"{what}: no wheel for Python {' or '.join(PYTHONS)}:\n{told[-500:]}")
