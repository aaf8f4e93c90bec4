"""One process runs a reducer, the others of the session read its verdict."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from aggverify.errors import InputError, NotJudged
from aggverify.model import Verdict
from aggverify.testing.shared_run import Known, once
from tests import verdicts

[VERDICT] = verdicts.written(verdicts.verdict(reports=1)).verdicts


def none() -> Verdict:
    raise AssertionError("it is run twice")


def test_only_the_first_runs_and_the_others_wait(tmp_path: Path) -> None:
    found: list[Known] = []
    meanwhile = threading.Thread(target=lambda: found.append(once("a", tmp_path, none)))

    def run() -> Verdict:
        meanwhile.start()
        meanwhile.join(0.05)  # it cannot end before this does
        assert found == []
        return VERDICT

    assert once("a", tmp_path, run) == VERDICT
    meanwhile.join()
    assert found == [VERDICT]


@pytest.mark.parametrize("error", [InputError("no such file: r.py"), NotJudged("no room")])
def test_why_there_is_none_is_shared_too(tmp_path: Path, error: Exception) -> None:
    def run() -> Verdict:
        raise error

    assert once("a", tmp_path, run) == str(error)
    assert once("a", tmp_path, none) == str(error)
    assert once("b", tmp_path, lambda: VERDICT) == VERDICT


def test_a_single_process_writes_nothing(tmp_path: Path) -> None:
    assert once("a", None, lambda: VERDICT) is VERDICT
    assert list(tmp_path.iterdir()) == []


def test_a_verdict_that_cannot_be_kept_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Path:
        raise OSError(28, "No space left on device")

    assert once("a", tmp_path / "gone", lambda: VERDICT) is VERDICT
    monkeypatch.setattr("aggverify.testing.shared_run.write_inside", full)
    assert once("a", tmp_path, lambda: VERDICT) is VERDICT


def test_a_run_that_is_interrupted_is_another_process_s_to_do(tmp_path: Path) -> None:
    def interrupted() -> Verdict:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        once("a", tmp_path, interrupted)
    assert once("a", tmp_path, lambda: VERDICT) == VERDICT
