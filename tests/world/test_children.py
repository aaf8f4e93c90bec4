"""A process that lives is found among the children of its parent, whatever ends beside it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from aggverify.world import linux

_FORKS = """
import os, sys, time

def forked(seconds):
    pid = os.fork()
    if pid == 0:
        time.sleep(seconds)
        os._exit(0)
    return pid

for line in sys.stdin:
    ends, stays = forked(0), forked(600)
    print(stays, flush=True)
    os.waitpid(ends, 0)
    print("reaped", flush=True)
    sys.stdin.readline()
    os.kill(stays, 9)
    os.waitpid(stays, 0)
"""
"""For each pair of lines on stdin a child that ends, and a younger one that stays."""

ROUNDS = 500
"""In one of 55, on two cores, the kernel's own list was once without the child that stays."""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", _FORKS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    ) as process:
        yield process
        os.killpg(process.pid, signal.SIGKILL)


def test_one_is_found_while_an_older_one_ends(parent: subprocess.Popen[bytes]) -> None:
    assert parent.stdin is not None and parent.stdout is not None
    for _ in range(ROUNDS):
        parent.stdin.write(b"\n")
        stays = int(parent.stdout.readline())
        while not select.select([parent.stdout], [], [], 0)[0]:
            assert stays in linux.children(parent.pid)
        assert parent.stdout.readline() == b"reaped\n"
        assert linux.child(parent.pid, stays) == stays
        parent.stdin.write(b"\n")


def test_one_that_is_gone_has_none() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    assert linux.children(process.pid) == []
    assert linux.child(process.pid, os.getpid()) == linux.NO_PROCESS


def test_every_process_is_asked_where_the_kernel_has_no_list(
    parent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parent.stdin is not None and parent.stdout is not None
    parent.stdin.write(b"\n")
    stays = int(parent.stdout.readline())
    assert parent.stdout.readline() == b"reaped\n"
    monkeypatch.setattr(linux, "_kernel_lists_children", lambda: False)
    assert linux.children(parent.pid) == [stays]


def test_what_has_lost_its_parent_is_still_in_its_group() -> None:
    forks = "import os, time\nif os.fork() == 0:\n    time.sleep(600)\n"
    with subprocess.Popen([sys.executable, "-c", forks], start_new_session=True) as first:
        assert first.wait() == 0
        try:
            [orphan] = linux.in_group(first.pid)
            assert orphan not in linux.descendants(first.pid)
        finally:
            os.killpg(first.pid, signal.SIGKILL)
