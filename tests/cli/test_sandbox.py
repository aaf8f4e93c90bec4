"""``--sandbox``: what a pull request's code can reach, and what is said where none can be made."""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aggverify.errors import InputError
from aggverify.run.planning.request import Request
from aggverify.world import Fault, Options, Pool, PoolError, Replies, Sandbox, linux, sandbox
from tests.choosing import thorough_at_times
from tests.conftest import EXAMPLES, ROOT, Cli
from tests.waiting import wait_until
from tests.world.conftest import HERE, Script, job, opened
from tests.world.conftest import script as script

RIGHT = EXAMPLES / "native" / "sum" / "token_mean.py"
LITTLE = ("--profile", "quick", "--max-examples", "2", "--mode", "token_mean", "--engine", "sum")


def test_without_bubblewrap_there_is_one_sentence(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "MAKER", "no-such-program")
    ran = cli("check", RIGHT, "--sandbox")
    assert ran.code == 2
    assert "error: --sandbox needs bubblewrap, and there is no bwrap here: install" in ran.err
    assert ran.err.count("\n") == 1


def fake(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A bwrap that does that."""
    (folder / "bwrap").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_without_the_filter_there_is_one_sentence(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, monkeypatch, "exit 0")
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    ran = cli("check", RIGHT, "--sandbox")
    assert ran.code == 2
    assert "--sandbox needs libseccomp and Python's way to it: pip install" in ran.err
    assert ran.err.count("\n") == 1


def test_where_the_kernel_refuses_there_is_one_sentence(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyseccomp", exc_type=Exception)  # type: ignore[call-arg]
    asked = tmp_path / "asked"
    words = "bwrap: setting up uid map: Permission denied"
    fake(tmp_path, monkeypatch, f"echo >> {asked}; echo {words} >&2; exit 1")
    ran = cli("check", RIGHT, "--sandbox")
    assert ran.code == 2
    assert asked.read_text().count("\n") == 1
    told = "error: no sandbox can be made here: bwrap: setting up uid map: Permission denied"
    assert told in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("own", [("--oracle", "own.py"), ("--engine", "own:ENGINE")])
def test_code_that_would_run_outside_of_it_is_refused(
    cli: Cli, tmp_path: Path, own: tuple[str, str]
) -> None:
    (tmp_path / "own.py").write_text("open('ran', 'w')\n")
    ran = cli("check", RIGHT, "--sandbox", *own)
    assert ran.code == 2
    assert f"--sandbox: {own[1]!r} would be run in this process, outside of it" in ran.err
    assert not (tmp_path / "ran").exists()


def test_what_a_pull_request_puts_into_the_settings_is_not_run_either(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "own_too.py").write_text("open('ran', 'w')\n")
    (tmp_path / "pyproject.toml").write_text("[tool.aggverify]\nengine = 'own_too:ENGINE'\n")
    ran = cli("check", RIGHT, "--sandbox")
    assert ran.code == 2
    assert "'own_too:ENGINE' would be run in this process, which is outside of --sandb" in ran.err
    assert not (tmp_path / "ran").exists()
    with pytest.raises(InputError, match="outside of it"):  # what the settings say comes late
        replace(Request("r.py", sandbox=True), oracle="own.py")


def test_a_folder_above_what_is_hidden_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    (tmp_path / "me").mkdir()
    for shown in (tmp_path, tmp_path / "me", Path("/"), Path("/tmp")):
        with pytest.raises(
            PoolError, match=f"--sandbox hides .* needs {shown}: put it into a separate f"
        ):
            Sandbox((shown,)).command(["true"], 0, follow=False)


def test_variables_are_a_closed_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    made = Sandbox().environment({"MORE": "1"})
    assert made.keys() <= {*sandbox.ENVIRONMENT, "HOME", "TMPDIR", "USER", "MORE"}
    assert (made["LANG"], made["HOME"], made["MORE"]) == ("C.UTF-8", "/tmp", "1")


# -- with the real one ------------------------------------------------------------------------


@pytest.fixture
def real() -> None:
    """Skips where no sandbox can be made."""
    try:
        probe = [*Sandbox().command(["true"], filter_ := sandbox.filtered(), follow=False)]
    except PoolError as error:
        pytest.skip(str(error))
    done = subprocess.run(probe, pass_fds=[filter_], capture_output=True, text=True)
    os.close(filter_)
    if done.returncode:
        pytest.skip(sandbox.refused(done.stderr.strip()))


REACHES = """
import contextlib, ctypes, os, socket, subprocess
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    if getattr(LIBC, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def written(path):
    Path(path).write_text("x")


def found(text):
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if text in Path(f"/proc/{number}/environ").read_text(errors="replace"):
                return
    raise KeyError(text)


def connected(*address):
    socket.create_connection(address, timeout=5).close()


TRIES = {
    "write home": lambda: written(HOME + "/made"),
    "write project": lambda: written(PROJECT + "/made"),
    "write root": lambda: written("/made"),
    "write device": lambda: written("/dev/made"),
    "write kernel": lambda: written("/proc/sys/kernel/core_pattern"),
    "read ssh": lambda: Path(HOME + "/.ssh/id_rsa").read_text(),
    "read token": lambda: Path(PROJECT + "/.git/config").read_text(),
    "read secret": lambda: os.environ["SECRET"],
    "read secret of others": lambda: found("s3cr3t"),
    "see others": lambda: os.stat(f"/proc/{PARENT}"),
    "connect": lambda: connected("192.0.2.1", 80),
    "connect to this machine": lambda: connected("127.0.0.1", PORT),
    "host sockets": lambda: socket.socket(40, socket.SOCK_STREAM),
    "new user namespace": lambda: call("unshare", 0x10000000),
    "trace": lambda: call("ptrace", 0, 0, 0, 0),
    "mount": lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, 0),
}
HELD = {}
for name, attempt in TRIES.items():
    try:
        attempt()
    except (OSError, KeyError, ValueError) as error:
        HELD[name] = type(error).__name__


def reduce(losses, batch):
    written("/tmp/its own")
    assert set(HELD) == set(TRIES), f"NOT HELD {set(TRIES) - set(HELD)}"
    return _reduce(losses, batch)
"""


HARMLESS = (
    "write home", "write project", "read ssh", "read token", "read secret", "read secret of others",
    "see others", "connect to this machine",
)  # fmt: skip
FREE = f"[(name, TRIES[name]) for name in {HARMLESS!r}]"
"""All that is tried where nothing holds it back."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a key in it, and a project below it with a token, where the person stands."""
    folder = tmp_path / "me"
    (folder / ".ssh").mkdir(parents=True)
    (folder / ".ssh" / "id_rsa").write_text("key")
    (folder / "project" / ".git").mkdir(parents=True)
    (folder / "project" / ".git" / "config").write_text("token")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("SECRET", "s3cr3t")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return folder


def aggverify(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "aggverify", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.thorough
def test_a_right_reducer_passes_and_reaches_nothing(real: None, home: Path) -> None:
    """What does no harm works without a sandbox, or the test would show nothing."""
    text = RIGHT.read_text().replace("def reduce(", "def _reduce(")
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = {"HOME": str(home), "PROJECT": str(home / "project"), "PARENT": os.getpid()}
        here["PORT"] = server.getsockname()[1]
        named = "".join(f"{name} = {value!r}\n" for name, value in here.items())
        (home / "project" / "r.py").write_text(text + "\n\n" + named + REACHES)
        how = (*LITTLE, "--sandbox", "--world", "2", "-v")
        ran = aggverify(home / "project", "check", "r.py", *how)
        (home / "project" / "free.py").write_text(named + REACHES.replace("TRIES.items()", FREE))
        free = subprocess.run(
            [sys.executable, "-c", "import free; print(sorted(set(free.TRIES) - set(free.HELD)))"],
            cwd=home / "project",
            capture_output=True,
            text=True,
            check=True,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^ *sandbox +no network beyond loopback, no home", ran.stdout, re.MULTILINE)
    assert set(HARMLESS) <= set(ast.literal_eval(free.stdout))


ACTS = {
    "connects": ("socket.create_connection(('192.0.2.1', 80), 5)", "Network is unreachable"),
    "writes to HOME": ("open(HOME + '/log', 'w')", "Read-only file system"),
    "reads a key": ("open(HOME + '/.ssh/id_rsa')", "No such file or directory"),
    "reads a secret": ("os.environ['SECRET']", "KeyError: SECRET"),
}


@pytest.mark.parametrize("name", thorough_at_times(ACTS, 4, ids=str))
def test_what_fails_for_it_is_told_plainly(real: None, home: Path, name: str) -> None:
    act, told = ACTS[name]
    text = RIGHT.read_text().replace("def reduce(", "def _reduce(")
    (home / "project" / "r.py").write_text(
        f"import os, socket\nHOME = {str(home)!r}\n{text}\n\ndef reduce(losses, batch):\n"
        f"    {act}\n    return _reduce(losses, batch)\n"
    )
    how = (*LITTLE, "--sandbox", "-v", "--report", "json")
    ran = aggverify(home / "project", "check", "r.py", *how)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "AGV401" in ran.stdout and told in ran.stdout.replace("'", ""), ran.stdout
    assert re.search(r"^ *sandbox +no network beyond loopback, no home", ran.stdout, re.MULTILINE)
    made = json.loads((home / "project" / ".aggverify" / "verdict.json").read_text())
    assert made["verdicts"][0]["sandbox"].startswith("no network beyond loopback")
    [case] = (home / "project" / ".aggverify" / "cases").iterdir()
    again = aggverify(home / "project", "replay", case.stem, "--sandbox")
    assert again.returncode == 1 and "FAILED" in again.stdout, again.stdout + again.stderr
    assert told in again.stdout.replace("'", "")


@pytest.mark.thorough
def test_faults_are_told_apart_in_it_as_outside(real: None, own_launchers: None) -> None:
    """Ranks have other numbers there: they are watched, asked for their stacks and ended all the
    same."""
    with Pool(Options(second_look=0.2, sandbox=Sandbox((ROOT,)))) as pool:
        template = opened(pool, "Play")
        acts = {"sleep": {"seconds": 99}, "compute": {"seconds": 99}, "leave": {"status": 3}}
        outcomes = template.run([job(name, 2, on=[1], **more) for name, more in acts.items()])
        blocked, runaway, died = (found for found in outcomes if isinstance(found, Fault))
        assert (blocked.kind, runaway.kind, died.kind) == ("blocked", "runaway", "died")
        assert any("handlers" in frame.file for frame in blocked.stacks[1][0].frames)
        assert isinstance(template.run([job("nothing", 4)])[0], Replies)
        template.close()


@pytest.mark.thorough
def test_nothing_is_left_of_it(real: None, script: Callable[[str], Script]) -> None:
    one = script(
        f"""
from pathlib import Path
from aggverify.world import Job, Options, Pool, Sandbox
pool = Pool(Options(sandbox=Sandbox((Path({str(ROOT)!r}),))))
template = pool.template("handlers:Play", {{}}, paths=[{HERE!r}])
template.run([Job(2, {{"act": "leave_daemon"}})])
print("ready", flush=True)
template.run([Job(2, {{"act": "compute", "seconds": 600}}, cpu_seconds=600)])
"""
    )
    assert one.line() == "ready"
    below = linux.descendants(one.process.pid)
    assert len(below) >= 7, below  # bwrap, launcher, template, two ranks, what these have started
    one.process.kill()
    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))


def test_what_is_handed_on_is_documented() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    assert all(f"`{name}`" in text for name in sandbox.ENVIRONMENT)
    assert f"{sandbox.TEMPORARY_BYTES >> 20} MiB" in text
