"""What the kernel says of memory, wherever it says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.world import memory
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


def test_what_is_said_is_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([("/f", 2), ("/f", 2), ("/f", 5), None])
    monkeypatch.setattr(memory, "oom_kills", lambda: next(counts))
    watched = OomWatch()
    assert [watched.kernel_report() for _ in range(3)] == ["", "oom_kill 2 -> 5 in /f", ""]
