"""What is built out of this checkout, and interpreters that have one of them installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT

_ABSENT = [n for n in ("hatchling", "editables") if importlib.util.find_spec(n) is None]
_BUILD = "import sys, hatchling.build as b; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"


def build(kind: str, source: Path, folder: Path) -> Path:
    """The ``wheel``, ``sdist`` or ``editable`` of a source tree, as a build frontend gets it."""
    if _ABSENT:
        pytest.skip(f"needs {' and '.join(_ABSENT)}, which the test extra installs")
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", _BUILD, kind, str(folder)]
    done = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@dataclass(frozen=True, slots=True)
class Installed:
    """A fresh virtual environment; what it installs goes before what the tests' own one has."""

    python: Path
    site: Path

    @classmethod
    def make(cls, folder: Path) -> Installed:
        venv.create(folder, symlinks=True)
        [site] = (folder / "lib").glob("python*/site-packages")
        own = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
        # As plain entries: their .pth files, and with them this checkout, are not followed.
        (site / "dependencies.pth").write_text("\n".join(own) + "\n")
        return cls(folder / "bin" / "python", site)

    def add(self, wheel: Path) -> None:
        """Unpack a pure wheel, which is all that installing one does to importing it."""
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(self.site)
