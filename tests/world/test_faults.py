"""Every way a rank can go wrong is told as data, blames the right job, and the pool goes on."""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import replace

import pytest

from aggverify.world import Fault, Job, Options, Pool, Replies, Template, evidence
from aggverify.world.link import CapturedOutput
from tests import schemas
from tests.world.conftest import HERE, job, opened


def fault(play: Template, faulty: Job) -> Fault:
    """The outcome of a job between two good ones, which must not be touched by it."""
    good = job("nothing", faulty.world)
    before, outcome, after = play.run([good, faulty, good])
    assert isinstance(before, Replies), before
    assert isinstance(after, Replies), after
    assert [reply.data["sum"] for reply in after.replies] == [faulty.world] * faulty.world
    assert isinstance(outcome, Fault), outcome
    schemas.validator(schemas.FAULT).validate(json.loads(json.dumps(outcome.to_json())))
    return outcome


def functions(found: Fault, rank: int) -> set[str]:
    """What a rank was in, on any of its threads."""
    return {frame.function for stack in found.stacks[rank] for frame in stack.frames}


def test_an_exception_on_every_rank_is_a_value_and_the_world_goes_on(play: Template) -> None:
    good, bad = job("nothing"), job("raise_error", value=-7)
    first, outcome, last = play.run([good, bad, good])
    assert isinstance(first, Replies)
    assert isinstance(last, Replies)
    assert [r.data["pid"] for r in first.replies] == [r.data["pid"] for r in last.replies]
    assert isinstance(outcome, Fault)
    assert (outcome.kind, outcome.rank, outcome.message) == (
        "exception",
        0,
        "rank 0: ValueError: bad value -7",
    )


def test_a_traceback_shows_the_candidate_and_not_this_package(play: Template) -> None:
    text = evidence(fault(play, job("raise_error", value=1)))
    assert 'raise ValueError(f"bad value' in text
    assert "aggverify/world" not in text


def test_an_exception_on_one_rank_while_others_wait(play: Template) -> None:
    found = fault(play, job("raise_error", value=5, on=[2]))
    assert (found.kind, found.rank) == ("exception", 2)
    assert found.message == "rank 2: ValueError: bad value 5 (on rank 2, not on 0, 1, 3)"
    assert (found.size, set(found.errors)) == (4, {2})
    [waits] = found.traces[0]
    assert waits.text == "all_reduce float32[1] SUM of ranks 0,1,2,3"
    assert found.inside == {0: waits, 1: waits, 3: waits}
    assert found.traces == {0: (waits,), 1: (waits,), 2: (), 3: (waits,)}


def test_different_exceptions_name_the_first_rank(play: Template) -> None:
    found = fault(play, job("raise_own"))
    assert (found.kind, found.rank, found.message) == ("exception", 0, "rank 0: ValueError: even")
    texts = ["ValueError: even", "KeyError: 'odd'"] * 2
    assert [found.errors[rank].text for rank in range(4)] == texts


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raise_unprintable", "Mute: <its text cannot be made: RuntimeError>"),
        ("unserialisable", "TypeError: Object of type lock is not JSON serializable"),
        ("leave_by_sys_exit", "SystemExit: 3"),
        ("hog_python_memory", "MemoryError"),
        ("hog_memory", "can't allocate memory"),
    ],
)
@pytest.mark.parametrize("on", [[0, 1], [1]])
def test_exceptions_of_all_kinds(play: Template, name: str, message: str, on: list[int]) -> None:
    found = fault(play, job(name, 2, on=on))
    assert (found.kind, found.rank) == ("exception", on[0])
    assert message in found.message


def test_a_message_of_megabytes_is_cut(play: Template) -> None:
    found = fault(play, job("raise_huge", 2))
    assert found.message.startswith("rank 0: ValueError: x\\udcff")
    assert len(found.message) < 5_000
    assert len(evidence(found)) < 20_000


@pytest.mark.parametrize("status", [0, 7])
@pytest.mark.parametrize("on", [[1], [0, 1, 2, 3]])
def test_a_rank_that_exits(play: Template, status: int, on: list[int]) -> None:
    found = fault(play, job("leave", status=status, on=on))
    assert (found.kind, found.rank, found.exit_status) == ("died", on[0], status)
    assert found.message == f"rank {on[0]} exited with status {status}"


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGABRT", "SIGSEGV"])
def test_a_rank_ended_by_a_signal(play: Template, name: str) -> None:
    number = signal.Signals[name]
    found = fault(play, job("kill_self", signal=int(number), on=[3]))
    assert (found.kind, found.rank, found.exit_status) == ("died", 3, -number)
    assert found.message == f"rank 3 was ended by {name}"


@pytest.mark.parametrize(
    "name",
    [
        "segfault",
        pytest.param(
            "overflow_the_stack",
            marks=pytest.mark.skipif(
                sys.version_info[:2] == (3, 12),
                reason="CPython 3.12 limits recursion in C: it raises, and nothing crashes",
            ),
        ),
    ],
)
def test_a_crash_leaves_the_python_stack(play: Template, name: str) -> None:
    found = fault(play, job(name, 2, on=[1]))
    assert (found.kind, found.rank, found.exit_status) == ("died", 1, -signal.SIGSEGV)
    assert found.crash == "Segmentation fault"
    assert "endings.py" in evidence(found)


@pytest.mark.parametrize("name", ["loop", "loop_in_c", "loop_without_gil"])
def test_an_endless_loop(play: Template, name: str) -> None:
    found = fault(play, job(name, 2, on=[1]))
    assert (found.kind, found.rank) == ("runaway", 1)
    assert found.message == "rank 1 did not finish within 1 s of processor time"
    assert name in functions(found, 1)
    assert {r: c.text for r, c in found.inside.items()} == {
        0: "all_reduce float32[1] SUM of ranks 0,1"
    }


def test_an_endless_loop_on_every_rank_names_the_lowest(play: Template) -> None:
    """Of those that had a processor: one that was kept from it is not seen to run away."""
    found = [fault(play, job("loop", 2))]
    while found[-1].rank != 0 and len(found) < 6:
        found.append(fault(play, job("loop", 2)))
    assert {each.kind for each in found} == {"runaway"}
    assert found[-1].rank == 0


@pytest.mark.parametrize("world", [1, 2, 8])
def test_a_sleeping_rank_is_blocked(play: Template, world: int) -> None:
    odd = world - 1
    found = fault(play, job("sleep", world, seconds=3600, on=[odd]))
    assert (found.kind, found.rank) == ("blocked", odd)
    assert found.message == f"rank {odd} sleeps or waits outside any collective, for good"
    assert "sleep" in functions(found, odd)
    assert set(found.stacks) == set(range(world))
    assert set(found.inside) == set(range(world)) - {odd}


@pytest.mark.parametrize("name", ["poll", "stop_self"])
def test_other_ways_to_wait_for_ever(play: Template, name: str) -> None:
    # On a loaded machine it takes a while to see that a rank which polls mostly sleeps.
    found = fault(play, replace(job(name, on=[1]), cpu_seconds=60))
    assert (found.kind, found.rank) == ("blocked", 1)
    assert name in functions(found, 1)


@pytest.mark.thorough
def test_who_prints_while_it_waits_is_blocked_in_the_end() -> None:
    # Every line is progress of a kind, so that only the limit on silence tells; with the processor
    # time that a loaded machine takes over as many polls as fit into it.
    with Pool(Options(cpu_seconds=600, silence=10)) as pool:
        (found,) = opened(pool, "Play").run([job("poll_and_print", 2, on=[1])])
    assert isinstance(found, Fault)
    assert (found.kind, found.rank) == ("blocked", 1)
    assert "poll_and_print" in functions(found, 1)


def test_every_rank_asleep(play: Template) -> None:
    found = fault(play, job("sleep", seconds=3600))
    assert (found.kind, found.rank) == ("blocked", 0)


@pytest.mark.parametrize("name", ["compute", "wait_for_child"])
def test_slow_is_not_blocked(play: Template, name: str) -> None:
    (outcome,) = play.run([job(name, seconds=0.3, on=[1])])
    assert isinstance(outcome, Replies)


def test_output_is_kept_to_its_tail(play: Template) -> None:
    found = fault(play, job("chatter", 2, die=True, on=[1]))
    assert (found.kind, found.exit_status) == ("died", 9)
    assert found.output[1].endswith("the last words of stdout\nthe last words of stderr\n")
    assert len(found.output[1]) <= 8_000


def test_output_does_not_disturb_an_answer(play: Template) -> None:
    (outcome,) = play.run([job("chatter", 2)])
    assert isinstance(outcome, Replies)


def test_who_waits_for_its_output_to_be_read_is_not_blocked(
    play: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Megabytes through a pipe of 64 KiB, to a reader that has much else to do.
    read = CapturedOutput.read

    def late(output: CapturedOutput) -> int:
        time.sleep(0.01)
        return read(output)

    monkeypatch.setattr(CapturedOutput, "read", late)
    (outcome,) = play.run([job("chatter", 2)])
    assert isinstance(outcome, Replies), outcome


def test_what_prints_without_end_is_ended(pool: Pool) -> None:
    """By what it has written in one job: what many jobs have written together ends nothing."""
    made = pool.template("handlers:Play", {}, paths=[HERE], more={"printed": 16 << 20})
    assert isinstance(made, Template)
    much, endless = job("chatter", 2), job("print_without_end", 2, on=[1])
    *fine, outcome, after = made.run([much, much, much, endless, job("nothing", 2)])
    assert all(isinstance(each, Replies) for each in (*fine, after)), (fine, after)
    assert isinstance(outcome, Fault)
    assert (outcome.kind, outcome.rank) == ("runaway", 1)
    assert outcome.message == "rank 1 prints without end: it has written more than 16 MiB"
    assert len(outcome.output[1]) < 10_000
    assert "print_without_end" in functions(outcome, 1)
    made.close()


def test_who_prints_now_and_then_sleeps_in_between(play: Template) -> None:
    """Much less than its pipe takes: nobody has kept it waiting."""
    found = fault(play, job("print_and_sleep", 2, on=[1]))
    assert (found.kind, found.rank) == ("blocked", 1)


def test_closing_every_file_is_a_death(play: Template) -> None:
    found = fault(play, job("close_everything", 2, on=[1]))
    assert (found.kind, found.rank) == ("died", 1)


def test_the_killer_of_the_process_that_forks_ranks_is_found(play: Template) -> None:
    jobs = [job("nothing", 2), job("nothing"), job("kill_parent", 2, on=[1]), job("nothing", 1)]
    outcomes = play.run(jobs * 2)
    kinds = [o.kind if isinstance(o, Fault) else None for o in outcomes]
    assert kinds == [None, None, "died", None] * 2


def test_a_rank_that_destroys_its_process_group_is_named(play: Template) -> None:
    found = fault(play, job("destroy_group", on=[1]))
    assert (found.kind, found.rank) == ("exception", 1)
    assert "Default process group has not been initialized" in found.message


def test_a_death_in_the_next_job_does_not_spoil_this_one(play: Template) -> None:
    # Ranks do not wait for each other between jobs, so one may die while others are a job behind.
    behind = job("compute", seconds=0.02, on=[0])
    dies = job("leave", status=1, on=[1])
    for _ in range(3):
        outcomes = play.run([behind, dies, behind])
        assert [isinstance(outcome, Fault) for outcome in outcomes] == [False, True, False]
