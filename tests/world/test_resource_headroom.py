"""What fails for want of room, before the code under test is called, is no fault of that code."""

from __future__ import annotations

import errno
import os
import resource
import signal
from pathlib import Path

import pytest

from aggverify.world import (
    Fault,
    Pool,
    PoolError,
    Replies,
    Template,
    groups,
    linux,
    memory,
    postmortem,
    resource_headroom,
)
from aggverify.world.devices import loops_back
from tests.waiting import wait_until
from tests.world.conftest import HERE, job, opened


@pytest.mark.parametrize(("fails", "kind"), [(1, Replies), (9, Fault)])
def test_ranks_that_do_not_start_are_tried_again_beside_no_others(
    pool: Pool, tmp_path: Path, fails: int, kind: type
) -> None:
    """The world of one rank is in the way at first, and ended."""
    template = opened(pool, "FailsAtFirst", {"tries": str(tmp_path / "tries"), "fails": fails})
    jobs = [job("nothing", 1), job("nothing", 2), job("nothing", 2), job("nothing", 1)]
    outcomes = template.run(jobs)
    assert [type(outcome) for outcome in outcomes] == [Replies, kind, kind, Replies]
    # Both jobs of two ranks may be in flight when these do not start; then each is tried again.
    assert len((tmp_path / "tries").read_text()) in (2, 3)
    if isinstance(outcome := outcomes[1], Fault):
        assert (outcome.is_internal, outcome.kind, outcome.rank) == (True, "exception", 1)
        assert outcome.message == "rank 1: OSError: no room (while rank 1 started)"
    template.close()


@pytest.mark.parametrize(
    "name",
    ["raise_error", *(pytest.param(n, marks=pytest.mark.thorough) for n in ("leave", "sleep"))],
)
def test_what_fails_in_the_handlers_own_work_is_told_apart(pool: Pool, name: str) -> None:
    template = opened(pool, "OwnWork")
    act = {"value": 1, "status": 1, "seconds": 99}
    own, theirs = template.run([job(name, 2, on=[1], **act), job(name, 2, on=[1], own=[], **act)])
    assert isinstance(own, Fault) and own.is_internal
    assert isinstance(theirs, Fault) and not theirs.is_internal
    assert (own.kind, own.rank, own.message) == (theirs.kind, theirs.rank, theirs.message)
    template.close()


def test_who_waits_for_a_rank_on_its_way_is_not_to_blame(pool: Pool) -> None:
    """Rank 1 sleeps before the code under test is called, rank 0 in a collective of that code."""
    template = opened(pool, "OwnWork")
    [found] = template.run([job("sleep", 2, on=[1], own=[1], seconds=99)])
    assert isinstance(found, Fault)
    assert (found.kind, found.rank, found.is_internal) == ("blocked", 1, True)
    template.close()


def test_what_failed_first_is_the_cause_of_what_follows(pool: Pool) -> None:
    """Rank 1 fails on its way, so that rank 0 waits for it in a collective of the job."""
    template = opened(pool, "OwnWork")
    [found] = template.run([job("raise_error", 2, on=[1], own=[1], value=1)])
    assert isinstance(found, Fault)
    assert (found.kind, found.rank, found.is_internal) == ("exception", 1, True)
    [found] = template.run([job("raise_error", 2, own=[1], value=1)])
    assert isinstance(found, Fault)
    assert (found.kind, found.rank, found.is_internal) == ("exception", 1, True)
    [found] = template.run([job("raise_error", 2, on=[1], own=[0], value=1)])
    assert isinstance(found, Fault)
    assert (found.kind, found.rank, found.is_internal) == ("exception", 1, False)
    template.close()


@pytest.mark.parametrize(
    ("number", "limits", "ours"),
    [
        (errno.EAGAIN, ("pids.max is 60",), True),
        (errno.EMFILE, ("ulimit -n is 64",), True),
        (errno.EAGAIN, (), False),
        (errno.EPERM, ("pids.max is 60",), False),
        (errno.ENOMEM, ("pids.max is 60",), False),  # of a rank's own limit
    ],
)
def test_what_the_machine_refuses_the_code_under_test_is_no_fault_of_it(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, number: int, limits: tuple[str, ...], ours: bool
) -> None:
    """Where it has little room: elsewhere it is the code that asks for too much."""
    monkeypatch.setattr(resource_headroom, "tight", lambda: limits)
    template = opened(pool, "Play")
    [found] = template.run([job("ask_for_more", 2, errno=number)])
    assert isinstance(found, Fault)
    assert (found.kind, found.is_internal) == ("exception", ours)
    template.close()


@pytest.mark.parametrize(
    ("most", "says"),
    [("MOST_HELPERS", "it starts processes without end"), ("MOST_THREADS", "it starts threads")],
)
def test_who_filled_the_machine_is_to_blame_for_it(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, most: str, says: str
) -> None:
    """Between two counts of who ends it for that; here two ranks are as many as fill it."""
    monkeypatch.setattr(resource_headroom, "tight", lambda: ("pids.max is 60",))
    monkeypatch.setattr(postmortem, most, 0)
    template = opened(pool, "Play")
    [found] = template.run([job("ask_for_more", 2, errno=errno.EAGAIN)])
    assert isinstance(found, Fault)
    assert (found.kind, found.rank, found.is_internal) == ("died", None, False)
    assert found.message.startswith(says)
    assert bool(found.threads) == (most == "MOST_THREADS") and not found.ended
    template.close()


def test_ranks_that_fall_asleep_while_they_start_are_not_waited_for(pool: Pool) -> None:
    more = {"second_look": 0.02}
    made = pool.template("handlers:StartsAsleep", {"rank": 1}, paths=[HERE], more=more)
    assert isinstance(made, Template)
    asleep, awake = made.run([job("nothing", 2), job("nothing", 1)])
    assert isinstance(asleep, Fault) and isinstance(awake, Replies)
    assert (asleep.kind, asleep.rank, asleep.is_internal) == ("blocked", 1, True)
    assert asleep.message == "rank 1 sleeps or waits while it starts"
    made.close()


def test_worlds_run_by_themselves_once_that_was_seen_to_help(pool: Pool, tmp_path: Path) -> None:
    """Others are ended before, and wait: they would be started, fail and be started again."""
    jobs = [job("nothing", size) for size in (1, 2, 1)]
    for n in range(50):  # a rank that ends before it has said why is started again, no more
        template = opened(pool, "FailsAtFirst", {"tries": str(tmp_path / f"tries{n}"), "fails": 1})
        assert all(isinstance(outcome, Replies) for outcome in template.run(jobs))
        assert template._dispatcher is not None
        alone = len(template._dispatcher._worlds) == 1  # two that were there before may stay
        if template._dispatcher._one_world and alone:
            break
        template.close()
    else:
        pytest.fail("no rank of 50 said why it ended")
    others = [each for each in template.run(jobs) if isinstance(each, Replies)]
    assert len(others) == len(jobs)
    assert len(template._dispatcher._worlds) <= 1
    template.close()


def test_ranks_that_end_while_a_world_waits_for_them_are_reaped_once(pool: Pool) -> None:
    template = opened(pool, "Play")
    template.run([job("nothing", 1)])
    assert template._dispatcher is not None and template._handle is not None
    dispatcher, parent = template._dispatcher, template._handle.pid
    [(key, world)] = dispatcher._worlds.items()
    [rank] = (link.pid for link in world.links)
    assert parent is not None and rank is not None
    os.kill(parent, signal.SIGSTOP)
    try:  # both are there when it looks again: an end, and what waits for all ends
        os.kill(rank, signal.SIGKILL)
        wait_until(lambda: ") Z " in Path(f"/proc/{rank}/stat").read_text())
        dispatcher._start(key._replace(size=2), dispatcher._clock.now(), alone=True)
    finally:
        os.kill(parent, signal.SIGCONT)
    assert isinstance(template.run([job("nothing", 2)])[0], Replies)
    assert template._handle.pid == parent, "the process ranks are forked from is the same one"
    template.close()


def test_no_file_is_left_for_a_world(pool: Pool) -> None:
    template = opened(pool, "Play")
    template.run([job("nothing", 1)])
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    filling = [os.dup(0)]  # of the numbers that are free below it
    while filling[-1] < least:
        filling.append(os.dup(0))
    least = max(least, filling[-1])
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least + 9, limit[1]))
        large, small = template.run([job("nothing", 8), job("nothing", 1)])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        for number in filling:
            os.close(number)
    assert isinstance(large, Fault) and large.is_internal
    assert large.message == "not all can be started: Too many open files"
    assert isinstance(small, Replies)
    assert isinstance(template.run([job("nothing", 8)])[0], Replies)
    template.close()


def test_no_file_is_left_for_a_template(pool: Pool) -> None:
    opened(pool, "Play").close()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limit[1]))
        with pytest.raises(PoolError, match="ranks cannot be started here: Too many open files"):
            pool.template("handlers:Play", {})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def files(root: Path, contents: dict[str, str]) -> Path:
    for name, text in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


GROUP = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("own", "folder"),
    [
        ("0::/job/step\n", f"{GROUP}/job"),
        ("8:pids:/job/step\n4:memory:/\n", f"{GROUP}/pids/job"),
        ("8:pids:/elsewhere\n", f"{GROUP}/pids"),
    ],
    ids=["version 2, of one around it", "version 1", "in a container"],
)
def test_the_limit_of_the_control_group_is_named(own: str, folder: str, tmp_path: Path) -> None:
    inner = f"{folder}/step/pids.current"
    root = files(
        tmp_path,
        {
            "proc/self/cgroup": own,
            f"{folder}/pids.max": "60\n",
            f"{folder}/pids.current": "58\n",
            inner: "1\n",
        },
    )
    assert resource_headroom.tight(root) == (
        f"/{folder}/pids.max is 60, and 58 processes and threads are there",
    )
    text = resource_headroom.without("ranks cannot be started here", "no more", root)
    assert text == f"ranks cannot be started here: no more ({resource_headroom.tight(root)[0]})"
    (root / folder / "pids.max").write_text("max\n")
    assert resource_headroom.tight(root) == ()
    (root / folder / "pids.max").write_text("100000\n")
    assert resource_headroom.tight(root) == ()


def test_few_files_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (64, 64))
    assert "the limit on open files (ulimit -n) is 64" in resource_headroom.tight(tmp_path)
    # Of two that are low, the one that was hit.
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert len(resource_headroom.tight(tmp_path)) == 2
    for number, limit in ((errno.EMFILE, "ulimit -n"), (errno.EAGAIN, "ulimit -u")):
        said = resource_headroom.without("ranks", os.strerror(number), tmp_path)
        assert (said.count("ulimit"), limit in said) == (1, True)


def test_without_a_loopback_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(99, "Cannot assign requested address")

    assert loops_back()
    monkeypatch.setattr("fcntl.ioctl", refuse)
    assert not loops_back()


MIB = 1 << 20


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ("0::/\n", {}, 2048),
        ("0::/job\n", {"job/memory.max": 900 * MIB, "job/memory.current": 100 * MIB}, 800),
        ("0::/job\n", {"job/memory.max": "max", "job/memory.current": 100 * MIB}, 2048),
        (
            "4:memory:/job\n",
            {
                "memory/job/memory.limit_in_bytes": 50 * MIB,
                "memory/job/memory.usage_in_bytes": 60 * MIB,
            },
            0,
        ),
    ],
    ids=["the machine's", "version 2", "no limit", "version 1, none left"],
)
def test_how_much_memory_is_free(
    own: str, limits: dict[str, object], expected: int, tmp_path: Path
) -> None:
    contents = {f"{GROUP}/{name}": f"{value}\n" for name, value in limits.items()}
    told = {"proc/meminfo": "MemTotal: 1 kB\nMemAvailable: 2097152 kB\n", "proc/self/cgroup": own}
    told |= {f"{GROUP}/cgroup.controllers": "memory pids\n"} if own.startswith("0") else {}
    assert memory.free(files(tmp_path, contents | told)) == expected * MIB


def test_a_control_group_that_refuses_is_seen(tmp_path: Path) -> None:
    own = {"proc/self/cgroup": "0::/job/step\n", f"{GROUP}/job/step/pids.events": "max 0\n"}
    root = files(tmp_path, own | {f"{GROUP}/job/pids.events": "max 3\n"})
    watched = resource_headroom.PidsWatch(root)
    assert not watched.refused()
    (root / GROUP / "job" / "pids.events").write_text("max 4\n")
    assert watched.refused()


def test_who_waits_for_what_was_refused_is_not_to_blame(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = opened(pool, "Play")
    for refused in (False, True):
        monkeypatch.setattr(
            resource_headroom.PidsWatch, "refused", lambda watched, was=refused: was
        )
        [found] = template.run([job("sleep", 2, on=[1], seconds=99)])
        assert isinstance(found, Fault)
        assert (found.kind, found.is_internal) == ("blocked", refused)
    template.close()


def test_version_2_without_controllers_is_no_group(tmp_path: Path) -> None:
    """Where those are of version 1 what is mounted above them is a plain folder."""
    own = "4:pids:/job\n1:name=systemd:/\n0::/\n"
    root = files(tmp_path, {"proc/self/cgroup": own, f"{GROUP}/pids/job/pids.max": "max\n"})
    assert memory.groups(root) == {"pids": root / GROUP / "pids" / "job"}


def test_a_control_group_is_made_where_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By root in version 1; where the folder cannot be written there is none."""
    own = Path("/proc/self/ns/pid").stat().st_ino
    killed = f"aggverify-ranks-{own}-{linux.NO_PROCESS}-77-{'a' * 32}"
    reused = f"aggverify-ranks-{own}-{os.getpid()}-1-{'a' * 32}"  # its pid, another start time
    running = f"aggverify-ranks-{own}-{os.getpid()}-{linux.started(os.getpid())}-{'a' * 32}"
    elsewhere = f"aggverify-ranks-1-{linux.NO_PROCESS}-77-{'a' * 32}"
    for name in (killed, reused, running, elsewhere):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(memory, "groups", lambda: {"": tmp_path})
    group = groups.made(99, 77)
    assert group is not None
    [folder] = group.folders
    assert (folder / "pids.max").read_text() == "99\n"
    assert (folder / "memory.max").read_text() == "77\n"
    # A maker that runs, or one of another pid namespace, may be about to enter an empty group.
    assert set(tmp_path.iterdir()) == {folder, tmp_path / running, tmp_path / elsewhere}
    (tmp_path / running).rmdir()
    (tmp_path / elsewhere).rmdir()
    assert group.entering(["true"])[-1] == "true"
    for file in folder.iterdir():
        file.unlink()
    group.close()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(memory, "groups", lambda: {"": tmp_path / "no such folder"})
    assert groups.made(99, 77) is None


def test_a_process_outside_its_group_enters_it_or_that_is_known(tmp_path: Path) -> None:
    """A plain folder stands for a group: what is written there is what it holds."""
    (tmp_path / "cgroup.procs").write_text("1\n")
    assert groups.Group((tmp_path,)).holds(77)
    assert (tmp_path / "cgroup.procs").read_text() == "77\n"
    assert not groups.Group((tmp_path / "gone",)).holds(77)
