"""What one process has found out is read by the others."""

from __future__ import annotations

import threading
from pathlib import Path

from aggverify.execution.claim import Claim
from aggverify.execution.subject import Refused, Subject
from aggverify.model import Lines, Ranks
from aggverify.testing.shared_discovery import once

CLAIM = Claim("r.py", "reduce", "native", "sum")


def test_only_the_first_finds_out_and_the_others_wait(tmp_path: Path) -> None:
    subject = Subject.of(CLAIM).compared_with(Subject.of(CLAIM).knowing(engine_declared=False))
    known = subject.claiming(mode="constant", divisor=16.0).knowing(
        identified=True,
        refused=(Refused("fan-out", "no"),),
        ranks=Ranks("AVX2", "1"),
        returns_logs=False,
        functions=(Lines("reduce", (8, 9, 11), 7, ("def reduce(a):",)),),
        notes=("a",),
    )
    found: list[Subject | None] = []
    meanwhile = threading.Thread(target=lambda: found.append(once(subject, tmp_path, lambda: None)))

    def find() -> Subject:
        meanwhile.start()
        meanwhile.join(0.05)  # it cannot end before this does
        assert found == []
        return known

    assert once(subject, tmp_path, find) == known
    meanwhile.join()
    assert found == [known]
    assert once(subject.claiming(engine="mean"), tmp_path, lambda: None) is None


def test_without_others_and_without_anything_found_nothing_is_written(tmp_path: Path) -> None:
    subject = Subject.of(CLAIM)
    assert once(subject, None, lambda: subject) is subject
    assert once(subject, tmp_path, lambda: None) is None
    assert once(subject, tmp_path, lambda: subject) == subject
