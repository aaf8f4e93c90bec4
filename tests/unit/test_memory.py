"""What the kernel says of memory, wherever it says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.world import memory, resource_headroom
from aggverify.world.memory import OomWatch, oom_kills

V2 = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"


@pytest.mark.parametrize(
    ("groups", "files", "said"),
    [
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/memory.events": V2}, ("a/b/memory.events", 2)),
        ("0::/hidden\n", {"sys/fs/cgroup/memory.events": V2}, ("memory.events", 2)),
        (
            "9:cpu:/x\n4:memory:/d\n0::/\n",
            {"sys/fs/cgroup/memory/d/memory.oom_control": V1},
            ("memory/d/memory.oom_control", 4),
        ),
        (
            "4:cpu,memory:/d\n",
            {"sys/fs/cgroup/memory/memory.oom_control": V1},
            ("memory/memory.oom_control", 4),
        ),
    ],
)
def test_the_control_groups_own_count(
    tmp_path: Path, groups: str, files: dict[str, str], said: tuple[str, int]
) -> None:
    written = {"proc/self/cgroup": groups, "proc/vmstat": "nr_free 1\noom_kill 9\n", **files}
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert oom_kills(tmp_path) == (f"/sys/fs/cgroup/{said[0]}", said[1])


def test_else_the_whole_machines(tmp_path: Path) -> None:
    assert oom_kills(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/vmstat").write_text("nr_free 1\noom_kill 9\n")
    assert oom_kills(tmp_path) == ("/proc/vmstat", 9)
    (tmp_path / "proc/vmstat").write_text("nr_free 1\n")  # before Linux 4.13
    assert oom_kills(tmp_path) is None


GIB, MIB = 1 << 30, 1 << 20


@pytest.mark.parametrize(
    ("groups", "folder", "files"),
    [
        ("0::/a\n", "sys/fs/cgroup/a", ("memory.max", "memory.current")),
        (
            "4:memory:/a\n",
            "sys/fs/cgroup/memory/a",
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ),
    ],
)
def test_ranks_are_launched_where_their_interpreters_have_memory(
    tmp_path: Path, groups: str, folder: str, files: tuple[str, str]
) -> None:
    def there(used: int, cached: int) -> str:
        stat = f"cache 1\ntotal_inactive_file {cached}\ntotal_active_file 0\n"
        written = {
            "proc/self/cgroup": groups,
            "proc/meminfo": f"MemTotal: 9 kB\nMemAvailable: {8 * GIB // 1024} kB\n",
            "sys/fs/cgroup/cgroup.controllers": "memory\n",
            f"{folder}/{files[0]}": str(GIB),
            f"{folder}/{files[1]}": str(used),
            f"{folder}/memory.stat": stat,
        }
        for name, text in written.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return resource_headroom.no_memory_to_launch(4, tmp_path)

    assert there(200 * MIB, 0) == ""
    assert there(600 * MIB, 400 * MIB) == ""  # what was read from files can be dropped
    why = "4 launched ranks, which import torch each, need 750 MiB of memory, and 424 MiB are free"
    assert there(600 * MIB, 0) == why


def test_what_is_said_is_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([("/f", 2), ("/f", 2), ("/f", 5), None])
    monkeypatch.setattr(memory, "oom_kills", lambda: next(counts))
    watched = OomWatch()
    assert [watched.kernel_report() for _ in range(3)] == ["", "oom_kill 2 -> 5 in /f", ""]
