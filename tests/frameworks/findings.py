"""The pages of ``docs/findings``: the script of each, run on a framework's code, and its output."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.frameworks import wheels

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "findings"
HERE = Path(__file__).parent
_RUN = """
import runpy, sys
import standins

script, folder, needed, *parts = sys.argv[1:]
there = [needed] if needed else []
sys.path[:0] = [folder, *there]
standins.install(*parts, there=there)
standins.install_missing(folder)
runpy.run_path(script)
"""


@dataclass(frozen=True, slots=True)
class Page:
    """A defect, and the code that its script runs on: a release, or a checkout's folder."""

    name: str
    stands_in: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Packages that are installed for it, as pip names them, none of which stands in."""
    package: str = ""
    version: str = ""
    fixed: str = ""
    """A release in which it is gone."""
    checkout: str = ""

    @property
    def text(self) -> str:
        return (PAGES / f"{self.name}.md").read_text(encoding="utf-8")

    @property
    def script(self) -> str:
        return _block(self.text, "python")

    @property
    def printed(self) -> str:
        return _block(self.text, "text")

    def run(self, folder: Path, kept: Path, wheels_folder: Path) -> str:
        """What it prints there, on code in that folder."""
        needed = str(wheels.installed(wheels_folder, *self.needs)) if self.needs else ""
        script = kept / f"{self.name}.py"
        script.write_text(self.script, encoding="utf-8")
        command = [sys.executable, "-W", "ignore", "-c", _RUN, str(script), str(folder), needed]
        done = subprocess.run([*command, *self.stands_in], cwd=HERE, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else done.stderr.strip()


def pages() -> Iterator[Page]:
    text = (ROOT / "reports" / "frameworks.toml").read_text(encoding="utf-8")
    for row in tomllib.loads(text)["page"]:
        lists = {key: tuple(row.get(key, ())) for key in ("stands_in", "needs")}
        yield Page(**row | lists)


def _block(text: str, language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None, language
    return found[1].strip()
