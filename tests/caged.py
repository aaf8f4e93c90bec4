"""Programs that fork or fill memory, run where they can hurt nothing: in a control group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.waiting import wait_until

_ROOT = Path("/sys/fs/cgroup")
_PIDS, _MEMORY = 400, 4 << 30
_SECONDS = 500
"""Only what hangs is ended by this; nothing that is asserted depends on it."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a program."""

    code: int
    text: str
    left: tuple[int, ...]
    """Processes that were still there when it had ended, and did not go by themselves."""


@dataclass(frozen=True, slots=True)
class Cage:
    """Control groups with few processes and little memory: one folder (v2), or two (v1)."""

    folders: tuple[Path, ...]

    def run(
        self,
        command: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str] | None = None,
        before: str = "",
    ) -> Ran:
        """Run a program in it; ``before``: a shell line that is run first, inside."""
        enter = "; ".join(f"echo $$ > {folder}/cgroup.procs" for folder in self.folders)
        with subprocess.Popen(
            ["sh", "-c", f'{enter}; {before or ":"}; exec "$@"', "sh", *command],
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            try:
                text, _ = process.communicate(timeout=_SECONDS)
            except BaseException:
                self.empty()
                raise
        wait_until(lambda: not self.members(), seconds=20)
        return Ran(process.returncode, text, tuple(self.members()))

    def members(self) -> list[int]:
        """Processes in it."""
        found: list[int] = []
        for file in self.folders[0].rglob("cgroup.procs"):  # others may lie inside
            with contextlib.suppress(OSError):
                found += map(int, file.read_text().split())
        return found

    def empty(self) -> None:
        """End all of them, however they fork."""
        while members := self.members():
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in members:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)


def _limits(name: str, pids: int, memory: int) -> Iterator[tuple[Path, str, int]]:
    """Folder, file and number of every limit: version 1, or version 2 where it is delegated."""
    if (_ROOT / "pids").is_dir():
        yield _ROOT / "pids" / name, "pids.max", pids
        yield _ROOT / "memory" / name, "memory.limit_in_bytes", memory
        return
    _, _, own = Path("/proc/self/cgroup").read_text().partition("::")
    folder = _ROOT / own.strip().strip("/") / name
    yield folder, "pids.max", pids
    yield folder, "memory.max", memory


@contextlib.contextmanager
def cage(pids: int = _PIDS, memory: int = _MEMORY) -> Iterator[Cage]:
    """A cage; skips the test where none can be made."""
    made: dict[Path, None] = {}
    try:
        try:
            for folder, file, number in _limits(f"aggverify-{uuid.uuid4().hex}", pids, memory):
                if folder not in made:
                    folder.mkdir()
                    made[folder] = None
                (folder / file).write_text(f"{number}\n")
        except OSError as error:
            pytest.skip(f"what forks runs in a control group only, and none can be made: {error}")
        yield Cage(tuple(made))
    finally:
        for folder in made:
            with contextlib.suppress(OSError):
                Cage((folder,)).empty()
            wait_until(lambda folder=folder: not Cage((folder,)).members(), seconds=20)  # type: ignore[misc]
            for inner in (*folder.glob("*/"), folder):
                inner.rmdir()
