"""A throw-away git repository with a reducer on its main branch, and others on theirs."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_DATES = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
"""The same commits wherever they are made."""


@dataclass(frozen=True, slots=True)
class Repository:
    """Where it lies; ``main`` is checked out between changes."""

    path: Path

    def git(self, *arguments: str) -> str:
        said = [
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "user.name=n",
            "-c",
            "user.email=n@example.org",
            "-c",
            "commit.gpgsign=false",
        ]
        done = subprocess.run(
            ["git", *said, *arguments],
            cwd=self.path,
            env=os.environ | _DATES,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def branch(self, name: str, files: dict[str, str | None]) -> None:
        """A branch off main with these files, None for one that goes."""
        self.git("checkout", "-q", "-B", name, "main")
        self.commit(files)
        self.git("checkout", "-q", "main")

    def commit(self, files: dict[str, str | None]) -> None:
        for file, text in files.items():
            path = self.path / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink() if text is None else path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a change")


def repository(path: Path, files: dict[str, str | None]) -> Repository:
    """With these files on main."""
    path.mkdir(parents=True, exist_ok=True)
    made = Repository(path)
    made.git("init", "-q", "-b", "main")
    made.commit({".gitignore": ".aggverify/\n", **files})
    return made
