"""A rank that takes its time at first is told from one that never comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aggverify.execution import limits
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.run.opening import opened
from aggverify.run.planning.claims import subjects
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import parse_target
from aggverify.run.session import examine
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.world import Options, Pool

LIMITS = Options(cpu_seconds=0.2, cpu_seconds_after=0.05)
CASES = [
    Case(parse_step("1/11 2/1"), layout, (1.0, 2.0, 3.0))
    for layout in (Layout.trivial(2), Layout((((0, 1),),), cp_size=2), Layout((((0,), (1,)),)))
]
BUSY = """
import time
def busy(seconds):
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass
"""
WAITS = """
import pathlib, time
mark = pathlib.Path(__file__).with_suffix(".mark")
if not mark.exists():
    mark.touch()
    time.sleep(1)
"""
REDUCER = """
from busy import busy
AGGVERIFY = {"mode": "token_sum", "engine": "sum"}
ready = False
def reduce(losses, batch):
    global ready
    if not ready:
        ACT
    ready = True
    return _summed(losses, batch)
def _slow_later(losses, batch):
    global ready
    if ready:
        busy(0.06)
    ready = True
    return _summed(losses, batch)
def _slow_at_first(losses, batch):
    global ready
    if not ready:
        busy(0.4)
    ready = True
    return _summed(losses, batch)
def _summed(losses, batch):
    return (losses * losses.new_tensor([bit for mask in batch.local_masks for bit in mask])).sum()
"""


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECOND_LOOK", 1.0)


@contextmanager
def under_test(folder: Path, act: str) -> Iterator[tuple[Executor, Subject]]:
    (folder / "busy.py").write_text(BUSY)
    (folder / "heavy.py").write_text("from busy import busy\nbusy(1.2)\n")
    (folder / "waits.py").write_text(WAITS)
    path = folder / "reducer.py"
    path.write_text(REDUCER.replace("ACT", act))
    target = parse_target(str(path))
    with Pool(LIMITS) as pool, opened(pool, target.setup()) as template:
        request = Request(str(path), modes=("token_sum",))
        yield Executor(template), subjects(request, target, template.description)[0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "act",
    ["busy(0.4)", pytest.param("import heavy", marks=pytest.mark.thorough), "import waits"],
)
def test_a_slow_start_is_no_failure(tmp_path: Path, act: str) -> None:
    with under_test(tmp_path, act) as (executor, subject):
        for _ in range(2):
            ran = executor.run(subject, CASES)
            assert [e.failure for e in ran] == [None] * len(CASES)
            assert all(e.weights is not None and e.weights.tolist() == [1, 1, 1] for e in ran)
            executor.fresh()


@pytest.mark.thorough
def test_what_never_comes_back_is_looked_at_again_once(tmp_path: Path) -> None:
    with under_test(tmp_path, "busy(3600)") as (executor, subject):
        began = executor.run(subject, CASES[:1])[0].failure
        later = executor.run(subject, CASES)
    assert began is not None
    assert (began.kind, "within 0.2 s" in began.message) == ("runaway", True)
    assert [e.failure and e.failure.kind for e in later] == ["runaway"] * len(CASES)
    assert all("within 0.05 s" in e.failure.message for e in later if e.failure)


@pytest.mark.parametrize(
    "other", ["_slow_later", pytest.param("_slow_at_first", marks=pytest.mark.thorough)]
)
@pytest.mark.thorough
def test_what_one_reducer_does_is_not_held_against_the_next(tmp_path: Path, other: str) -> None:
    with under_test(tmp_path, "busy(3600)") as (executor, subject):
        first = executor.run(subject, CASES)
        executor.begin()
        then = executor.run(subject.claiming(function=other), CASES * 2)
    assert [e.failure and e.failure.kind for e in first] == ["runaway"] * len(CASES)
    assert [e.failure for e in then] == [None] * len(then)


def test_every_subject_begins_anew(tmp_path: Path) -> None:
    class Begun(Exception):
        pass

    class Strict(Executor):
        def begin(self) -> None:
            raise Begun

    with under_test(tmp_path, "pass") as (executor, subject), pytest.raises(Begun):
        examine(subject, Strict(executor._template))
