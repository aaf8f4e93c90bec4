"""What the parent makes of the ranks' answers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from aggverify.checks.base import failure_finding
from aggverify.errors import NotJudged
from aggverify.execution.claim import Claim
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Executor
from aggverify.execution.kept import Submitted
from aggverify.execution.run_spec import LAUNCHED, REAL, RunSpec
from aggverify.execution.subject import Subject
from aggverify.execution.trace_sampling import FIRST
from aggverify.generation.catalogue import plain_losses
from aggverify.run.opening import with_room
from aggverify.run.outcome.coverage_observer import CoverageObserver
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.trainer.answer import Answer
from aggverify.world import Fault, Job, Outcome, Printed, Replies, Reply, resource_headroom
from aggverify.world.candidate_errors import Raised
from aggverify.world.frames import Frame

SUBJECT = Subject.of(Claim("r.py", "reduce", "native", "sum", "token_mean"))
STEP = parse_step("1/1; 1/11")
CASE = Case(STEP, Layout((((0,),), ((1,),))), plain_losses(STEP))


@dataclass(frozen=True, slots=True)
class Ranks:
    """Stands for a template whose ranks reply this to every job, at once."""

    outcome: Outcome
    given: list[Job] = field(default_factory=list)
    printed: Printed = field(default_factory=Printed)
    cpu_seconds: float = 4.0
    restarted: list[Collection[int] | None] = field(default_factory=list)
    """The sizes of worlds, at each time that they were."""

    def calm(self) -> None: ...

    def restart_worlds(self, sizes: Collection[int] | None = None) -> None:
        self.restarted.append(sizes)

    def submit(self, jobs: Sequence[Job]) -> Any:
        @dataclass(frozen=True)
        class Done:
            outcomes: list[Outcome]

            def wait(self) -> list[Outcome]:
                return self.outcomes

            def stumbles(self) -> bool:
                return False

        self.given.extend(jobs)
        return Done([self.outcome] * len(jobs))


@pytest.mark.parametrize(
    "asked", [{"elsewhere": 2**31}, {"virtual": (0,)}, {"scale": 1024.0}, {"under": "no_grad"}]
)
def test_lines_are_noted_of_the_first_cases_that_are_run_in_another_way(
    asked: dict[str, Any],
) -> None:
    """A reducer may branch on a count that is told to it, or where gradients are off."""
    ranks = Ranks(Fault("exception", 1, "rank 1: KeyError: 1", 2))
    executor = Executor(ranks)  # type: ignore[arg-type]
    wanted = [CASE] * (FIRST + 1) + [RunSpec(CASE, **asked)] * (FIRST + 1)
    executor.submit(SUBJECT, wanted)
    noted = [not job.payload.get("usual", False) for job in ranks.given]
    assert noted == ([True] * FIRST + [False]) * 2


def test_what_fails_before_the_reducer_is_called_is_not_judged() -> None:
    ranks = Ranks(Fault("exception", 1, "rank 1: RuntimeError: no room", 2, is_internal=True))
    executor = Executor(ranks)  # type: ignore[arg-type]
    for _ in range(2):  # the second time nothing is run
        with pytest.raises(NotJudged, match="not get as far as the reducer here: rank 1: Runtime"):
            executor.run(SUBJECT, [CASE])
        assert executor.executed == 1
    less = executor.in_less_room(SUBJECT)
    assert less is not None
    assert (less.max_world, less.found.no_room[:23]) == (1, "2 ranks: ranks do not g")
    assert executor.in_less_room(less) is None
    executor.begin()
    with pytest.raises(NotJudged):
        executor.run(SUBJECT, [CASE])
    assert executor.executed == 2


@dataclass(frozen=True, slots=True)
class Begun:
    """A request that was started ahead; how often it was waited for."""

    waited: list[None] = field(default_factory=list)
    why_not: str | None = None

    def submitted(self) -> Submitted:
        def executions() -> list[Execution]:
            self.waited.append(None)
            if self.why_not is not None:
                raise NotJudged(self.why_not)
            return []

        return Submitted(executions, lambda: False)


def test_what_was_started_ahead_is_given_once_to_who_asks_for_the_same() -> None:
    executor, begun = Executor(Ranks(Fault("died", 0, "", 1))), Begun()  # type: ignore[arg-type]
    wanted, submitted = [RunSpec(CASE)], begun.submitted()
    executor.begin_ahead(SUBJECT, wanted, submitted)
    assert executor.begun(SUBJECT, [RunSpec(CASE, scale=2.0)]) is None
    assert executor.begun(SUBJECT.claiming(mode="sample_mean"), wanted) is None
    assert executor.begun(SUBJECT, [RunSpec(CASE)]) is submitted
    assert executor.begun(SUBJECT, wanted) is None
    assert not begun.waited
    executor.begin_ahead(SUBJECT, wanted, submitted)
    executor.begin_ahead(SUBJECT, [RunSpec(CASE, scale=2.0)], Begun().submitted())
    assert len(begun.waited) == 1, "what comes next is not run among what nobody asks for"
    executor.begin_ahead(SUBJECT, wanted, submitted)
    executor.begin()
    assert executor.begun(SUBJECT, wanted) is None, "another subject has the ranks now"


@pytest.mark.parametrize("why_not", [None, "no memory"])
def test_fresh_ranks_do_not_run_again_what_was_started_ahead(why_not: str | None) -> None:
    """Jobs under way would begin again in them, before what is to be the first."""
    ranks, begun = Ranks(Fault("died", 0, "", 1)), Begun(why_not=why_not)
    executor = Executor(ranks)  # type: ignore[arg-type]
    executor.begin_ahead(SUBJECT, [RunSpec(CASE)], begun.submitted())
    executor.fresh()
    assert (len(begun.waited), ranks.restarted) == (1, [None])
    executor.fresh()
    assert len(begun.waited) == 1
    assert executor.begun(SUBJECT, [RunSpec(CASE)]) is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "AssertionError: a step before",
            "do not get as far as the reducer here: rank 0: Ass",
        ),
        ("OSError: [Errno 24] Too many open files", "the machine has no room for what the reducer"),
    ],
)
def test_only_what_says_so_is_for_want_of_room(said: str, why: str) -> None:
    """An engine's own file counts as the reducer's, and may fail where it warms up."""
    kind, _, message = said.partition(": ")
    error = Raised(kind, message, (Frame("r.py", 3, "reduce", "candidate", "r.py:3"),))
    fault = Fault("exception", 0, f"rank 0: {said}", 1, {0: error}, is_internal=True)
    with pytest.raises(NotJudged, match=why):
        Executor(Ranks(fault)).run(SUBJECT, [CASE.trivial])  # type: ignore[arg-type]


def test_where_one_rank_has_no_room_nothing_is_run() -> None:
    executor = Executor(Ranks(Fault("died", 0, "rank 0: no room", 1, is_internal=True)))  # type: ignore[arg-type]
    with pytest.raises(NotJudged):
        executor.run(SUBJECT, [CASE.trivial])
    with pytest.raises(NotJudged, match="ranks cannot be run here: ranks do not get as far"):
        executor.in_less_room(SUBJECT)


@dataclass(slots=True)
class Small:
    """Stands for a template on a machine that has room for so many ranks."""

    fits: int
    most: int = 64
    why_no_more: str = "2 ranks were launched"
    asked: list[int] = field(default_factory=list)

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        [job] = jobs
        self.asked.append(job.world)
        layouts = map(Layout.from_json, job.payload["groups"])
        assert {layout.world_size for layout in layouts} == {job.world}
        if job.world > self.fits:
            return [
                Fault("died", 0, "rank 0 cannot be started: no room", job.world, is_internal=True)
            ]
        return [Replies(())]


def test_worlds_are_as_large_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_headroom, "tight", lambda root=None: ("pids.max is 60",))
    small = Small(3)
    [found] = with_room([SUBJECT], Executor(small))  # type: ignore[arg-type]
    assert (found.max_world, small.asked) == (3, [8, 6, 4, 3])
    observer = CoverageObserver()
    observer.add(found, [CASE])
    [told] = [w.detail for w in observer.weaknesses(found) if w.code == "AGVW19"]
    assert told.startswith("those of more than 3 were left out; 8 ranks: rank 0 cannot be started:")
    [found] = with_room([SUBJECT], Executor(Small(8)))  # type: ignore[arg-type]
    assert found == SUBJECT
    with pytest.raises(NotJudged, match="ranks cannot be run here: 8 ranks: rank 0 cannot be star"):
        with_room([SUBJECT], Executor(Small(0)))  # type: ignore[arg-type]
    monkeypatch.setattr(resource_headroom, "tight", lambda root=None: ())
    launched = Small(8, most=2)
    [found] = with_room([SUBJECT], Executor(launched))  # type: ignore[arg-type]
    assert (found.max_world, launched.asked, found.found.no_room) == (
        2,
        [2],
        "2 ranks were launched",
    )
    unasked = Small(0)
    assert with_room([SUBJECT], Executor(unasked)) == (SUBJECT,)  # type: ignore[arg-type]
    assert unasked.asked == []


def executed(*answers: Answer) -> Execution:
    """One execution of two ranks that answer so; both losses count, rank 0 sends the gradient."""
    weights = np.full(3, 1 / 3).tobytes()
    replies = (Reply(answer.to_json(), b"" if n else weights) for n, answer in enumerate(answers))
    executor = Executor(Ranks(Replies(tuple(replies))))  # type: ignore[arg-type]
    [execution] = executor.run(SUBJECT, [CASE])
    return execution


def test_answers_become_weights_and_the_scalar() -> None:
    found = executed(Answer((0.25,), (1,), checksum=7), Answer((0.5,), (2,), checksum=7))
    assert found.failure is None
    assert found.weights is not None and found.weights.tolist() == [1 / 3] * 3
    assert found.value == 0.75
    assert found.counts == (1, 2)


@pytest.mark.covers(fault="disagree")
def test_gradients_that_differ_between_ranks_are_a_fault_and_no_weights() -> None:
    found = executed(Answer((0.25,), (1,), checksum=7), Answer((0.5,), (2,), checksum=8))
    assert found.failure is not None and found.failure.kind == "disagree"
    assert found.weights is None
    told = failure_finding("some_check", SUBJECT, found)
    assert told is not None and told.code == "AGV405"


def test_a_bare_case_is_run_once_for_all_its_judges_until_ranks_are_fresh() -> None:
    data = Answer((0.25,), (1,), checksum=7).to_json()
    ranks = Ranks(Replies((Reply(data, bytes(24)), Reply(data, b""))))
    executor = Executor(ranks)  # type: ignore[arg-type]
    other = CASE.with_losses((-0.0, *CASE.losses[1:]))
    zero = CASE.with_losses((0.0, *CASE.losses[1:]))
    first, again = (executor.shared(SUBJECT, [CASE]).executions() for _ in range(2))
    assert first[0] is again[0] and executor.executed == 1
    executor.shared(SUBJECT, [zero, other, CASE]).executions()
    assert executor.executed == 3, "a zero is not the other zero"
    executor.shared(SUBJECT, [RunSpec(CASE, alone=True)] * 2).executions()
    assert executor.executed == 5, "what is asked of more than a case is asked each time"
    executor.shared(SUBJECT.claiming(mode="sample_mean"), [CASE]).executions()
    assert executor.executed == 6
    for forget in (executor.fresh, executor.begin):
        before = executor.executed
        forget()
        executor.shared(SUBJECT, [CASE]).executions()
        assert executor.executed == before + 1


def test_a_case_of_several_diagnoses_is_run_once_for_a_subject() -> None:
    """In fresh ranks too; with its lines, which are not noted for a bare one, once more."""
    data = Answer((0.25,), (1,), checksum=7).to_json()
    executor = Executor(Ranks(Replies((Reply(data, bytes(24)), Reply(data, b"")))))  # type: ignore[arg-type]
    executor.shared(SUBJECT, [CASE]).executions()
    for wanted in (CASE, RunSpec(CASE, noted=True)):
        before = executor.executed
        [first] = executor.diagnosed(SUBJECT, [wanted])
        executor.fresh([CASE])
        [again] = executor.diagnosed(SUBJECT, [wanted])
        assert first is again and executor.executed == before + 1
    executor.begin()
    assert executor.diagnosed(SUBJECT, [CASE])[0] is not first


def test_only_the_worlds_of_cases_are_made_fresh_and_their_ranks_of_another_kind() -> None:
    ranks, real, launched = (Ranks(RAN_AWAY) for _ in range(3))
    executor = Executor(ranks)  # type: ignore[arg-type]
    executor._others = {REAL: Executor(real), LAUNCHED: Executor(launched)}  # type: ignore[arg-type]
    executor.fresh([CASE.trivial, RunSpec(CASE, where=REAL)])
    assert (ranks.restarted, real.restarted, launched.restarted) == ([{1, 2}], [{2}], [])
    executor.fresh()
    assert (ranks.restarted[1:], real.restarted[1:], launched.restarted) == ([None],) * 3


def test_a_failure_is_not_kept() -> None:
    executor = Executor(Ranks(Fault("exception", 0, "no", 2)))  # type: ignore[arg-type]
    for _ in range(2):
        executor.shared(SUBJECT, [CASE]).executions()
    assert executor.executed == 2


def test_ranks_are_not_launched_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_headroom, "no_memory_to_launch", lambda n: f"not for {n}")
    with pytest.raises(NotJudged, match=f"not for {CASE.layout.world_size}"):
        Executor(Small(8)).submit(SUBJECT, [RunSpec(CASE, where=LAUNCHED)])  # type: ignore[arg-type]


RAN_AWAY = Fault("runaway", 0, "did not finish", 2)


def test_all_of_a_subject_s_ranks_are_patient_and_begin_anew_together() -> None:
    """Launched ones too: what ran away in one mode is given its full time in the next.

    They have a longer time than usual, which patience does not make shorter.
    """
    executor, real, launched = (
        Executor(Ranks(RAN_AWAY, cpu_seconds=seconds))  # type: ignore[arg-type]
        for seconds in (4.0, 4.0, 60.0)
    )
    executor._others |= {LAUNCHED: launched, REAL: real}
    with executor.patient():
        every = [each._cpu_seconds for each in (executor, real, launched)]
    assert every == [4.0, 4.0, 60.0]
    assert executor._cpu_seconds is real._cpu_seconds is launched._cpu_seconds is None
    for forget in (executor.calm, executor.begin):
        launched._retry_policy._tried.add(1.0)
        forget()
        assert not launched._retry_policy._tried
    launched._unfit[2] = "no room"
    executor.begin()
    assert not launched._unfit
