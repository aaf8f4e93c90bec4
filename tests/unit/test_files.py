"""Files of ours are read within limits, and written where they belong."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from aggverify import files
from aggverify.errors import CandidateError, InputError
from aggverify.files import append, os_error_text, parsed, put, read_json, write_inside
from aggverify.oracles import OracleError
from aggverify.oracles.custom import load
from aggverify.run.planning import settings
from aggverify.run.planning.target import parse_target


def test_written_and_read(tmp_path: Path) -> None:
    path = write_inside(tmp_path / "new", "cases/a.json", "[1]")
    assert path == tmp_path / "new" / "cases" / "a.json"
    assert read_json(path, "a case", 3) == [1]
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


@pytest.mark.parametrize("name", ["../a.json", "x/../../a.json", "/tmp/a.json"])
def test_names_do_not_lead_out(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="leads out of"):
        write_inside(tmp_path / "reports", name, "")
    assert not (tmp_path / "a.json").exists()


def test_links_do_not_lead_out(tmp_path: Path) -> None:
    reports, outside = tmp_path / "reports", tmp_path / "outside"
    reports.mkdir()
    outside.mkdir()
    (reports / "cases").symlink_to(outside)
    with pytest.raises(InputError, match="leads out of"):
        write_inside(reports, "cases/a.json", "")
    precious = outside / "precious"
    precious.write_text("kept")
    (reports / "verdict.json").symlink_to(precious)
    write_inside(reports, "verdict.json", "new")
    assert precious.read_text() == "kept"
    assert (reports / "verdict.json").read_text() == "new"


def test_a_report_directory_that_is_a_link_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "reports").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"reports is a link, to .*elsewhere: name that folder"):
        write_inside(tmp_path / "reports", "a.json", "")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_is_no_file_is_neither_waited_for_nor_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    for name, why in (("pipe.py", "Is a pipe"), ("folder.py", "Is a directory")):
        with pytest.raises(InputError, match=f"cannot read a case from .*{why}"):
            read_json(tmp_path / name, "a case", 5)
        with pytest.raises(CandidateError, match=f"cannot read .*{why}"):
            parse_target(str(tmp_path / name))
        with pytest.raises(InputError, match=f"cannot read .*{why}"):
            settings.read(tmp_path / name)
        with pytest.raises(OracleError, match="no such oracle file"):
            load(tmp_path / name)
    with pytest.raises(InputError, match="Is a device, not a file"):
        read_json(Path("/dev/zero"), "a case", 5)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"[1, 2]", r"larger than a case can be \(5 bytes\)"),
        (b"\xff", "cannot read a case"),
        (b"[", "cannot read a case"),
    ],
)
def test_what_is_not_read(tmp_path: Path, raw: bytes, message: str) -> None:
    (tmp_path / "a.json").write_bytes(raw)
    with pytest.raises(InputError, match=message):
        read_json(tmp_path / "a.json", "a case", 5)


def test_depth_is_limited(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match="recursion"):
        read_json(tmp_path / "a.json", "a case", 1 << 20)


def test_nothing_half_written_stays(tmp_path: Path) -> None:
    """A file size limit stands for a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / "kept").write_text("as it was")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="kept") as caught:
            write_inside(tmp_path, "kept", "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os_error_text(caught.value) == f"{tmp_path / 'kept'}: File too large"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "as it was"


def test_a_named_link_is_followed_and_a_file_keeps_its_mode(tmp_path: Path) -> None:
    kept, link = tmp_path / "kept", tmp_path / "link"
    kept.write_text("old")
    kept.chmod(0o640)
    link.symlink_to(kept)
    put(link, "new")
    assert link.is_symlink()
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("new", 0o640)
    put(tmp_path / "fresh", "text")
    assert (tmp_path / "fresh").read_text() == "text"


def test_a_named_pipe_is_written_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    put(pipe, "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    monkeypatch.setattr(files, "_READER_WAIT", 0.0)
    with pytest.raises(InputError, match="no process reads this pipe"):
        put(pipe, "text")
    assert pipe.is_fifo()


def test_standard_output_by_its_name_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = (
        "import sys; from pathlib import Path; from aggverify.files import put; "
        "print('before', flush=True); put(Path('/dev/stdout'), 'text\\n'); print('after')"
    )
    with out.open("w") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert out.read_text() == "before\ntext\nafter\n"


def test_a_step_summary_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for readers in (0, 1):
        fd = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK) if readers else None
        with pytest.raises(OSError, match=r"Is a pipe|No such device"):
            append(tmp_path / "pipe", "text")
        if fd is not None:
            os.close(fd)


def test_source_that_nests_too_deeply_is_not_taken_for_a_lack_of_memory(tmp_path: Path) -> None:
    source = "x = " + "-" * 100_000 + "1\n"
    with pytest.raises(SyntaxError, match="nests too deeply to be parsed"):
        parsed(source)
    (tmp_path / "r.py").write_text(source)
    with pytest.raises(CandidateError, match=r"r\.py: an expression nests too deeply"):
        parse_target(str(tmp_path / "r.py"))
