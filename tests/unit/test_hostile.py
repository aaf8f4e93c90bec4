"""Whatever a JSON file holds, it is read or refused with a sentence: no traceback, no memory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from aggverify.errors import InputError
from aggverify.run.outcome import store
from aggverify.run.planning.settings import MAX_BYTES, read
from aggverify.steps.case import Case
from aggverify.world.link import open_link
from aggverify.world.wire import encode
from tests import hostile, hostile_documents

PATIENT = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def test_the_document_itself_is_read() -> None:
    assert not hostile.refused(lambda: store.StoredCase.from_json(hostile.document()))


@PATIENT
@given(hostile.documents())
def test_documents(data: Any) -> None:
    hostile.feed(data)


@PATIENT
@given(hostile.texts())
def test_files(tmp_path: Path, text: bytes) -> None:
    hostile.feed_file(text, tmp_path / "case.json")


@PATIENT
@given(hostile.settings_texts())
def test_settings(tmp_path: Path, text: bytes) -> None:
    hostile.feed_settings(text, tmp_path / "pyproject.toml")


@PATIENT
@given(hostile.said())
def test_what_ranks_say(data: bytes) -> None:
    hostile.feed_rank(data)


@settings(parent=PATIENT, max_examples=25)
@given(hostile_documents.verdict_documents())
def test_verdict_documents(data: Any) -> None:
    hostile_documents.feed_verdict(data)


@settings(parent=PATIENT, max_examples=25)
@given(hostile_documents.baselines())
def test_baselines(tmp_path: Path, data: Any) -> None:
    hostile_documents.feed_baseline(data, tmp_path / "baseline.json")


@settings(parent=PATIENT, max_examples=25)
@given(hostile_documents.snapshots())
def test_snapshots(tmp_path: Path, text: bytes) -> None:
    hostile_documents.feed_snapshot(text, tmp_path / "snapshot.txt")


def test_what_ranks_should_say_is_taken() -> None:
    link, (connection, output, _) = open_link(0)
    link.asked += 3
    for header in (*hostile.SAID[:4], hostile.SAID[5]):
        assert link.hear(encode(header)).complete, link.garbage
    link.close()
    os.close(connection)
    os.close(output)


def test_a_key_of_no_sensible_size_is_not_repeated_in_full() -> None:
    data = hostile.document()
    data["claim"]["policy"] = {"[" * 100_000: 1}
    assert hostile.refused(lambda: store.StoredCase.from_json(data))


def test_settings_of_no_sensible_size(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("[tool.aggverify]\n" + "#" * MAX_BYTES)
    with pytest.raises(InputError, match="larger than settings can be"):
        read(path)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("step", "samples", 0, "mask"), {"runs": [[1, 1 << 40]]}, "at most 67108864 tokens"),
        (("step", "samples", 0, "mask"), {"runs": [[2, 2]]}, "0 and 1 only, got 2"),
        (("step", "samples", 0, "mask"), {"runs": [[1, 0]]}, "positive integer, got 0"),
        (("losses",), {"runs": [[1.0, 1 << 40]]}, "302 tokens, got 1099511627776 losses"),
        (("losses",), [10**400] * 302, "must fit a double"),
        (("layout", "cp"), 1 << 40, "cp_size"),
    ],
)
def test_a_few_bytes_do_not_ask_for_all_memory(path: Any, value: object, message: str) -> None:
    data = hostile.document()["case"]
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(InputError, match=message):
        Case.from_json(json.loads(json.dumps(data)))
