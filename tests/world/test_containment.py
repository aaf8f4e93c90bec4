"""Code that forks hurts neither the machine nor the verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aggverify.world.options import MOST_HELPERS
from tests.caged import Ran, cage
from tests.choosing import LATER
from tests.world.conftest import HERE, ROOT

SCRIPT = f"""
import json
from aggverify.world import Job, Pool, Replies

with Pool() as pool:
    play = pool.template("handlers:Play", {{}}, paths=[{HERE!r}])
    jobs = [Job(2, {{"act": ACT, "on": [1]}}, 60.0) for _ in range(JOBS)]
    told = []
    for outcome in play.run([*jobs, Job(2, {{"act": "nothing"}})]):
        if isinstance(outcome, Replies):
            told.append([[reply.data["sum"], reply.data.get("child")] for reply in outcome.replies])
        else:
            told.append(outcome.message)
    print(json.dumps(told))
"""
FINE = [[2.0, None]] * 2
"""What two ranks say that have started nobody."""
HELD = "it takes memory without end: all was ended when it held "
CROWD = "it starts processes without end: all were ended when there were "


def ran(folder: Path, *command: str) -> Ran:
    with cage() as made:
        found = made.run([sys.executable, *command], folder, {"PYTHONPATH": ROOT})
    assert found.left == (), found.text
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("act", ["fork_and_return", "fork_unseen"])
def test_a_child_that_comes_back_ends(act: str, tmp_path: Path) -> None:
    """One a job: of those that go on there would soon be as many as two to the number of jobs."""
    found = ran(tmp_path, "-c", SCRIPT.replace("ACT", repr(act)).replace("JOBS", "40"))
    *forked, after = json.loads(found.text)
    assert len(forked) == 40
    for (alone, nobody), (total, child) in forked:
        assert (alone, nobody, total) == (2.0, None, 2.0)
        assert child  # its number: the parent has answered, not the child
    assert after == FINE


@pytest.mark.thorough
def test_an_import_that_forks_leaves_one_template(tmp_path: Path) -> None:
    script = """
from aggverify.world import Job, Pool
with Pool() as pool:
    for _ in range(3):
        template = pool.template("handlers:ActsWhenMade", {"act": "fork_and_return"}, paths=[HERE])
        [outcome] = template.run([Job(2, {"act": "nothing"})])
        print(type(outcome).__name__)
        template.close()
"""
    found = ran(tmp_path, "-c", script.replace("HERE", repr(HERE)))
    assert found.text.split() == ["Replies"] * 3


ALONE = "from aggverify.world import starting\nstarting.GROUPED = False\n"
"""The launcher counts, and nothing else holds what is below it."""
OTHER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("act", "says"), [("fork_without_end", CROWD), ("hold_without_end", HELD)], ids=["many", "much"]
)
@pytest.mark.parametrize("how", [LATER("in a group"), "counted", LATER("counted, another user")])
def test_what_has_no_end_is_ended_and_the_rest_goes_on(
    act: str, says: str, how: str, tmp_path: Path
) -> None:
    """Inside an outer group in any case; in one of its own, which only root may make, or not."""
    script = SCRIPT.replace("ACT", repr(act)).replace("JOBS", "1")
    python, wrapped = sys.executable, ()
    if "another" in how:
        python, wrapped = others(), OTHER
        reads = [*wrapped, python, "-c", f"open({HERE!r} + '/conftest.py'); import torch"]
        if subprocess.run(reads, env=_found(), capture_output=True).returncode:
            pytest.skip("another user cannot read this checkout, or has no interpreter")
    with cage() as made:
        command = [*wrapped, python, "-c", script if how == "in a group" else ALONE + script]
        found = made.run(command, Path("/"), _found())
    assert found.left == (), found.text
    bomb, after = json.loads(found.text)
    assert bomb.startswith(says), bomb
    assert after == FINE


@pytest.mark.thorough
def test_what_is_written_to_files_in_memory_counts(tmp_path: Path) -> None:
    script = ALONE + SCRIPT.replace("ACT", "'write_to_memory_without_end'").replace("JOBS", "1")
    with cage() as made:
        found = made.run([sys.executable, "-c", script], Path("/"), _found())
    assert found.left == (), found.text
    bomb, after = json.loads(found.text)
    assert bomb.startswith(HELD) and bomb.endswith("MiB of them in memfd files"), bomb
    assert after == FINE


@pytest.mark.thorough
def test_what_starts_threads_without_end_is_ended(tmp_path: Path) -> None:
    script = SCRIPT.replace("ACT", "'thread_without_end'").replace("JOBS", "1")
    with cage(2000) as made:
        found = made.run([sys.executable, "-c", script], tmp_path, {"PYTHONPATH": ROOT})
    assert found.left == (), found.text
    bomb, after = json.loads(found.text)
    assert bomb.startswith("it starts threads without end: all were ended when there were "), bomb
    assert after == FINE


def others() -> str:
    """An interpreter that other users may run."""
    real = Path(sys.executable).resolve()
    if all(each.stat().st_mode & 1 for each in (real, *real.parents)):
        return sys.executable
    return f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"


def _found() -> dict[str, str]:
    packages = [entry for entry in sys.path if entry.endswith("-packages")]
    return {**os.environ, "PYTHONPATH": ":".join([ROOT, *packages])}


@pytest.mark.thorough
def test_a_group_of_its_own_holds_what_is_not_counted(tmp_path: Path) -> None:
    """No more processes than it has room for, whoever looks; and it is gone afterwards."""
    script = """
import os
from aggverify.world import Pool, groups, memory, starting
starting.MOST_PROCESSES = 8
with Pool() as pool:
    group = pool._launcher._fork_server._started.group
    if group is None:
        print("none")
    else:
        print((group.folders[0] / "pids.max").read_text().strip())
        template = pool.template("handlers:FailsToStart", {"act": "fork_without_end"}, paths=[HERE])
        print(template.kind)
print([folder for folder in (group.folders if group else ()) if folder.exists()])
"""
    found = ran(tmp_path, "-c", script.replace("HERE", repr(HERE)))
    most, *rest = found.text.split("\n")
    if most == "none":
        pytest.skip("no control group can be made inside another one here")
    assert most == "64"
    assert rest[:2] == ["exception", "[]"], found.text


BOMB = "import os\nwhile True:\n    os.fork()\ndef reduce(losses, batch):\n    pass\n"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import os\ndef reduce(losses, batch):\n    while True:\n        os.fork()\n", 1),
        LATER(BOMB, 2),
    ],
    ids=["when called", "when imported"],
)
def test_the_verdict_says_so(text: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(text)
    found = ran(tmp_path, "-m", "aggverify", "check", "r.py")
    assert (found.code, CROWD in found.text) == (code, True), found.text


@pytest.mark.thorough
def test_an_import_that_is_refused_one_more_first_says_so_too(tmp_path: Path) -> None:
    """There is less room than it takes until they are counted."""
    (tmp_path / "r.py").write_text(BOMB)
    with cage(pids=MOST_HELPERS + 40) as made:
        command = [sys.executable, "-m", "aggverify", "check", "r.py"]
        found = made.run(command, tmp_path, {"PYTHONPATH": ROOT})
    assert (found.code, CROWD in found.text, found.left) == (2, True, ()), found.text


@pytest.mark.thorough
@pytest.mark.parametrize("act", ["ask_a_pool", "ask_a_process", "ask_a_program"])
def test_helpers_that_do_not_come_back_are_let_work(act: str, tmp_path: Path) -> None:
    """A pool that stays, a forked process and a program for each job, all waited for."""
    found = ran(tmp_path, "-c", SCRIPT.replace("ACT", repr(act)).replace("JOBS", "20"))
    assert json.loads(found.text) == [FINE] * 21


RIGHT = (Path(ROOT) / "examples/native/sum/token_mean.py").read_text()


def checked(folder: Path, pids: int) -> Ran:
    """A right reducer, in worlds of up to eight ranks, where there may be so many processes."""
    (folder / "r.py").write_text(RIGHT)
    command = [sys.executable, "-m", "aggverify", "check", "r.py", "--world", "8"]
    with cage(pids) as made:
        found = made.run([*command, "--max-examples", "3"], folder, {"PYTHONPATH": ROOT})
    assert found.left == (), found.text
    return found


@pytest.mark.thorough
def test_where_no_ranks_fit_there_is_one_sentence(tmp_path: Path) -> None:
    found = checked(tmp_path, 5)
    assert found.code == 2, found.text
    assert "pids.max is 5" in found.text
    assert "Traceback" not in found.text
    assert found.text.count("\n") == 1


@pytest.mark.parametrize(
    ("pids", "told"),
    [
        # Half a minute of ranks that find no room.
        LATER(60, "those of more than 4 were left out"),
        pytest.param(200, None, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.exhaustive
def test_a_right_reducer_is_right_where_there_is_little_room(
    pids: int, told: str | None, tmp_path: Path
) -> None:
    found = checked(tmp_path, pids)
    assert found.code == 0, found.text
    assert ("AGVW19" in found.text) == (told is not None), found.text
    if told is not None:
        flat = " ".join(found.text.split())
        assert told in flat
        assert f"pids.max is {pids}" in flat


@pytest.mark.thorough
def test_few_open_files_are_told_once(tmp_path: Path) -> None:
    """Ranks that fit by themselves find no room on the way: from then on there are fewer."""
    (tmp_path / "r.py").write_text(RIGHT)
    command = [sys.executable, "-m", "aggverify", "check", "r.py", "--profile", "quick"]
    with cage() as made:
        found = made.run(
            [*command, "--max-examples", "2"], tmp_path, {"PYTHONPATH": ROOT}, "ulimit -n 24"
        )
    assert found.left == (), found.text
    assert found.code in (0, 2), found.text
    warned = [line for line in found.text.split("\n") if "AGVW19" in line]
    assert found.code == 2 or len(warned) == 1, found.text
    # When it was seen, and in the end.
    assert 1 <= found.text.count("(ulimit -n) is 24") <= 2, found.text
    assert "pids.max" not in found.text


ASKS = {
    "forks": ("if (child := os.fork()) == 0: os._exit(0)\n    os.waitpid(child, 0)", ":", 40),
    "makes groups": ("MADE.get(0) or MADE.setdefault(0, dist.new_group())", ":", 40),
    "opens files": ("files = [open('/dev/null') for _ in range(60)]", "ulimit -n 64", 400),
}
"""What a right reducer does when called, what its shell has done, and how many processes fit."""


@pytest.mark.parametrize(
    "what", [pytest.param("opens files", marks=pytest.mark.thorough)]
    + [LATER(what) for what in ("forks", "makes groups")],
)  # fmt: skip
def test_what_the_machine_refuses_a_right_reducer_is_no_finding(what: str, tmp_path: Path) -> None:
    act, before, pids = ASKS[what]
    text = RIGHT.replace("def reduce(", "def _reduce(")
    (tmp_path / "r.py").write_text(
        f"import os\nimport torch.distributed as dist\n{text}\nMADE = {{}}\n\n"
        "def reduce(losses, batch):\n"
        f"    {act}\n    return _reduce(losses, batch)\n"
    )
    command = [sys.executable, "-m", "aggverify", "check", "r.py", "--profile", "quick"]
    with cage(pids) as made:
        found = made.run(
            [*command, "--max-examples", "2"], tmp_path, {"PYTHONPATH": ROOT}, before=before
        )
    assert found.left == (), found.text
    assert found.code in (0, 2), found.text
    assert "AGV4" not in found.text, found.text
    if found.code == 2:
        limit = "ulimit -n) is 64" if what == "opens files" else f"pids.max is {pids}"
        assert limit in found.text, found.text
        assert "Traceback" not in found.text, found.text


@pytest.mark.thorough
def test_without_a_loopback_interface_there_is_one_sentence(tmp_path: Path) -> None:
    alone = ["unshare", "-n"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("no network namespace can be made here")
    (tmp_path / "r.py").write_text(RIGHT)
    done = subprocess.run(
        [*alone, sys.executable, "-m", "aggverify", "check", "r.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("aggverify: error: ranks talk over the loopback interface")
    assert done.stderr.count("\n") == 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    "act",
    [
        "[print('y' * 10**6) for _ in range(50)]",
        LATER("threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()"),
    ],
    ids=["prints 50 MB", "leaves a spinning thread"],
)
def test_what_wastes_time_ends_within_the_time_asked_for(act: str, tmp_path: Path) -> None:
    text = RIGHT.replace("def reduce(", "def _reduce(")
    body = f"    {act}\n    return _reduce(losses, batch)\n"
    (tmp_path / "r.py").write_text(
        f"{text}\n\nimport threading\n\n\ndef reduce(losses, batch):\n{body}"
    )
    began = time.monotonic()
    found = ran(tmp_path, "-m", "aggverify", "check", "r.py", "--max-time", "15")
    # What no command can see of itself, the interpreter's start and end, beside other tests.
    assert time.monotonic() - began < 15 + 15, found.text
    assert found.code in (0, 1, 2), found.text
    assert "Traceback" not in found.text, found.text
    # Cut by the time, judged, or a finding: never nothing.
    assert any(word in found.text for word in ("out of time", "finding", "conforms")), found.text
