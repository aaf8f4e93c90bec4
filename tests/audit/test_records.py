"""Files of records: what was complete survives, what is no record is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggverify.audit.records import MAGIC, Record, read_file, read_folder
from aggverify.audit.step_selection import StepSelection
from aggverify.audit.steps import merged
from aggverify.errors import InputError
from tests.audit.written import Pass, files, row

RECORD = Pass([row(0.25, 3), row(0.5, 1)], ids=[4, 5]).record(
    step=2, micro_batch=1, rank=0, world=1
)


def written(folder: Path, data: bytes) -> Path:
    path = folder / "rank-00000-1.agvr"
    path.write_bytes(MAGIC + data)
    return path


def test_what_is_written_is_read_bit_for_bit(tmp_path: Path) -> None:
    found = read_file(written(tmp_path, RECORD.packed() * 2))
    assert (len(found.records), found.cut) == (2, False)
    one = found.records[1]
    assert dict(one.head) == dict(RECORD.head)
    assert {k: (a.dtype, a.tolist()) for k, a in one.arrays.items()} == {
        k: (a.dtype, a.tolist()) for k, a in RECORD.arrays.items()
    }


def test_a_file_that_ends_anywhere_keeps_its_complete_records(tmp_path: Path) -> None:
    whole = RECORD.packed()
    for kept in range(len(whole)):
        found = read_file(written(tmp_path, whole + whole[:kept]))
        assert (len(found.records), found.cut) == (1, kept > 0)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (RECORD.packed()[:-1] + b"\xff", "record 0 is damaged"),
        (Record({"arrays": 3}).packed().replace(b'"arrays": 3', b'"arrays": 3'), None),
    ],
)
def test_what_was_changed_is_refused(tmp_path: Path, data: bytes, words: str | None) -> None:
    if words is None:
        assert read_file(written(tmp_path, data)).records
        return
    with pytest.raises(InputError, match=words):
        read_file(written(tmp_path, data))


def test_no_record_is_a_pickle_or_an_object(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a record"):
        read_file(written(tmp_path, Record({}, {"weights": np.array([1j])}).packed()))


def test_other_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no records"):
        read_folder(tmp_path)
    (tmp_path / "rank-0.agvr").write_bytes(b"PK\3\4")
    with pytest.raises(InputError, match="is no file of records"):
        read_folder(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        read_folder(tmp_path / "none")


def test_records_of_two_runs_are_refused() -> None:
    [own] = files([[Pass([row(1, 1)])]])
    with pytest.raises(InputError, match="several files of rank 0"):
        merged([own, replace(own, path=Path("rank-00000-2.agvr"))])


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", [0, 1, 2, 500, 1000]),
        ("first 2, every 3rd", [0, 1, 3, 6, 9]),
        ("every 2nd, at most 3", [0, 2, 4]),
        ("first 5, every 2nd, at most 6", [0, 1, 2, 3, 4, 6]),
        ("first 1", [0]),
    ],
)
def test_steps_are_chosen(text: str, steps: list[int]) -> None:
    chosen = StepSelection.read(text)
    end = 1001 if not text else 11
    assert [n for n in range(end) if chosen(n)][: len(steps)] == steps
    if "most" in text or text == "first 1":
        assert [n for n in range(end) if chosen(n)] == steps


@pytest.mark.parametrize("text", ["last 2", "every 0th", "first two", "first 2 every 3rd"])
def test_other_choices_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"got '{text}'"):
        StepSelection.read(text)
