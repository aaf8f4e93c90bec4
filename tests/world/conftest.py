"""One pool per test process, and processes found by a mark in their environment."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aggverify.world import Job, Options, Pool, Template
from tests.waiting import wait_until

HERE = str(Path(__file__).parent)
ROOT = str(Path(__file__).parents[2])
MARK = "AGGVERIFY_TEST_MARK"


def job(name: str, /, world: int = 4, **payload: object) -> Job:
    """A job for the handler ``Play``."""
    return Job(world, {"act": name, **payload})


def opened(pool: Pool, name: str, setup: dict[str, object] | None = None) -> Template:
    """A template of one of the tests' handlers, which must not fail."""
    template = pool.template(f"handlers:{name}", setup or {}, paths=[HERE])
    assert isinstance(template, Template), template
    return template


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    with Pool(Options(cpu_seconds=1.0, second_look=0.2)) as pool:
        yield pool


@pytest.fixture(scope="session")
def play(pool: Pool) -> Iterator[Template]:
    """The handler that does what a job names; its worlds are shared by all tests."""
    template = opened(pool, "Skipper")
    yield template
    template.close()


@dataclass(frozen=True, slots=True)
class Script:
    """A Python program started by a test, and all processes that come from it."""

    process: subprocess.Popen[str]
    mark: str
    temporary: Path

    def line(self) -> str:
        """The next line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        """Close its standard input, which it may be waiting for, then wait."""
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self.process.wait()

    def processes(self) -> dict[int, str]:
        """Command lines by pid of living processes with the mark in their environment."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if self.mark.encode() in (entry / "environ").read_bytes():
                        found[int(entry.name)] = (entry / "cmdline").read_text()[:200]
                except OSError:
                    continue
        return found

    def left(self) -> dict[int, str]:
        """Processes that do not end."""
        wait_until(lambda: not self.processes())
        return self.processes()


@pytest.fixture
def script(tmp_path: Path) -> Iterator[object]:
    started: list[Script] = []
    (tmp_path / "tmp").mkdir()

    def start(code: str) -> Script:
        mark = uuid.uuid4().hex
        environment = os.environ | {
            MARK: mark,
            "PYTHONPATH": ROOT,
            "TMPDIR": str(tmp_path / "tmp"),
        }
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code],
            env=environment,
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(Script(process, mark, tmp_path / "tmp"))
        return started[-1]

    yield start
    for one in started:
        for pid in one.processes():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        one.close()
