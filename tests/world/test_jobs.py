"""Jobs go out, replies come back: order, sizes, overlap, large and odd values."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aggverify.errors import InputError
from aggverify.world import GLOO, NCCL, Fault, Job, Options, Pool, PoolError, Replies, Template
from tests.world.conftest import ROOT, job, opened


@pytest.fixture(scope="module")
def echo(pool: Pool) -> Iterator[Template]:
    template = opened(pool, "Echo", {"name": "value"})
    yield template
    template.close()


def replies(outcome: object) -> tuple[dict[str, object], ...]:
    assert isinstance(outcome, Replies), outcome
    return tuple(reply.data for reply in outcome.replies)


def test_the_handlers_description_comes_back(echo: Template) -> None:
    assert echo.description == {"setup": {"name": "value"}, "threads": 1}


def test_mixed_worlds_answer_in_the_order_of_the_jobs(echo: Template) -> None:
    sizes = [1, 4, 2, 3, 1, 4, 2, 1]
    outcomes = echo.run([Job(size, {"n": n}) for n, size in enumerate(sizes)])
    for n, (size, outcome) in enumerate(zip(sizes, outcomes, strict=True)):
        expected = tuple(
            {"rank": r, "size": size, "sum": size * (size + 1) / 2, "job": {"n": n}}
            | {"device": "cpu"}
            for r in range(size)
        )
        assert replies(outcome) == expected
        assert isinstance(outcome, Replies)
        assert [reply.blob for reply in outcome.replies] == [bytes([r]) for r in range(size)]


def test_more_jobs_than_fit_in_flight(echo: Template) -> None:
    outcomes = echo.run([Job(2, {"n": n}) for n in range(200)])
    assert [replies(outcome)[1]["job"] for outcome in outcomes] == [{"n": n} for n in range(200)]


def test_submitted_jobs_may_be_waited_for_in_any_order(echo: Template) -> None:
    first, second = echo.submit([Job(2, {"n": 1})] * 3), echo.submit([Job(1, {"n": 2})])
    assert len(second.wait()) == 1
    assert len(first.wait()) == 3
    assert first.done
    assert first.wait() == first.wait()


def test_nothing_to_do(echo: Template) -> None:
    assert echo.run([]) == []


def test_payloads_and_replies_of_megabytes(echo: Template) -> None:
    text = "täxt" * 1_000_000
    for outcome in echo.run([Job(2, {"text": text}), Job(2, {"text": text})]):
        assert [data["job"] for data in replies(outcome)] == [{"text": text}] * 2


def test_worlds_live_on_and_fresh_ones_are_made_on_demand(play: Template) -> None:
    def pids() -> list[object]:
        return [data["pid"] for data in replies(play.run([job("nothing", 2)])[0])]

    before = pids()
    assert pids() == before
    play.restart_worlds()
    assert not set(pids()) & set(before)


def test_worlds_of_other_sizes_live_on(play: Template) -> None:
    def pids() -> list[set[object]]:
        outcomes = play.run([job("nothing", size) for size in (1, 2, 3)])
        return [{data["pid"] for data in replies(outcome)} for outcome in outcomes]

    before = pids()
    play.restart_worlds({1, 3})
    assert [old == new for old, new in zip(before, pids(), strict=True)] == [False, True, False]


def test_a_fresh_job_is_run_by_new_ranks_and_other_worlds_go_on(play: Template) -> None:
    one, two = job("nothing", 1), job("nothing", 2)
    fresh = replace(two, fresh=True)
    outcomes = play.run([one, two, fresh, two, fresh, replace(fresh, together=True), two, one])
    first, *pairs, last = ([data["pid"] for data in replies(outcome)] for outcome in outcomes)
    before, *new = pairs
    assert first == last
    assert new[0] == new[1] and new[3] == new[4]
    assert len({*before, *new[0], *new[2], *new[3]}) == 8


def test_a_job_may_be_run_under_another_backend(play: Template) -> None:
    other = replace(GLOO, sleeps_in_collectives=False)
    one, two = job("nothing", 2), replace(job("nothing", 2), backend=other)
    outcomes = play.run([one, two, one, two])
    pids = [{data["pid"] for data in replies(outcome)} for outcome in outcomes]
    assert pids[0] == pids[2] and pids[1] == pids[3]
    assert not pids[0] & pids[1]
    play.restart_worlds()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there may be a CUDA device")
def test_a_job_whose_backend_cannot_be_had_is_refused(play: Template) -> None:
    with pytest.raises(PoolError, match=r"without the nccl backend|needs a CUDA device"):
        play.submit([replace(job("nothing", 2), backend=NCCL)])
    assert isinstance(play.run([job("nothing", 2)])[0], Replies)


def test_jobs_in_flight_survive_a_restart_of_the_worlds(play: Template) -> None:
    pending = play.submit([job("nothing", 2)] * 5)
    play.restart_worlds()
    assert all(isinstance(outcome, Replies) for outcome in pending.wait())


def test_the_first_half_of_the_outcomes_or_a_fault_in_it_is_waited_for(
    play: Template, tmp_path: Path
) -> None:
    def slow(name: str) -> Job:
        """Does not end before the file is there."""
        return job("compute_until", 1, there=str(tmp_path / name))

    quick = job("nothing", 1)
    pending = play.submit([quick, quick, slow("one"), slow("one")])
    assert not pending.stumbles()
    assert not pending.done
    (tmp_path / "one").touch()
    assert all(isinstance(outcome, Replies) for outcome in pending.wait())
    pending = play.submit([job("raise_error", 1, value=1), slow("two"), slow("two")])
    assert pending.stumbles()
    assert not pending.done
    (tmp_path / "two").touch()
    assert [type(outcome) for outcome in pending.wait()] == [Fault, Replies, Replies]
    assert pending.stumbles()
    pending = play.submit([slow("two"), job("raise_error", 2, value=1)])
    assert isinstance(pending.wait()[1], Fault)
    assert not pending.stumbles(), "how soon the second half comes has no say"


@pytest.mark.parametrize("size", [0, -1, 65, True, "2", 2.0])
def test_a_world_of_no_size_is_refused(echo: Template, size: object) -> None:
    with pytest.raises(InputError, match=f"1 to 64 ranks, not {size!r}"):
        echo.submit([Job(size, {})])  # type: ignore[arg-type]


def test_a_payload_that_is_not_json_is_refused_before_anything_is_sent(echo: Template) -> None:
    with pytest.raises(InputError, match=r"job 1: payload is not JSON-able: .*set"):
        echo.submit([Job(1, {}), Job(1, {"x": {1}})])
    assert len(echo.run([Job(1, {"n": 3})])) == 1


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a_budget_that_is_none_is_refused(echo: Template, seconds: float) -> None:
    with pytest.raises(InputError, match="cpu_seconds must be positive"):
        echo.submit([Job(1, {}, cpu_seconds=seconds)])


@pytest.mark.parametrize("name", ["patience", "memory", "cpu_seconds", "silence"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "1", True, None])
def test_limits_that_are_none_are_refused(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"{name} must be a positive finite number"):
        Options(**{name: value})  # type: ignore[arg-type]


def test_limits_are_all_numbers_and_can_be_sent() -> None:
    sent = json.loads(json.dumps(Options(printed=7, preload="module").limits()))
    assert Options(**sent) == Options(printed=7)
    assert not sent.keys() & {"turn", "backend", "sandbox", "preload"}


@pytest.mark.thorough
def test_a_job_may_have_its_own_budget(play: Template) -> None:
    """The usual one is a second, and not looked at all the time."""
    endless, heavy = (job("compute", 1, seconds=seconds) for seconds in (60, 1.4))
    outcomes = play.run([endless, Job(1, heavy.payload, cpu_seconds=60)])
    assert isinstance(outcomes[0], Fault)
    assert outcomes[0].kind == "runaway"
    assert isinstance(outcomes[1], Replies)


def test_where_a_collective_was_called_is_told_without_its_folder(play: Template) -> None:
    [outcome] = play.run([job("nothing", 1)])
    assert isinstance(outcome, Replies)
    [note] = outcome.replies[0].notes
    assert re.fullmatch(r"base\.py:\d+", note.rpartition("|")[2]), note


def test_a_closed_template_says_so(pool: Pool) -> None:
    template = opened(pool, "Echo")
    pending = template.submit([Job(2, {})])
    template.close()
    template.close()
    with pytest.raises(PoolError, match="closed"):
        template.run([Job(1, {})])
    with pytest.raises(PoolError, match="given up"):
        pending.wait()


def test_a_closed_pool_says_so() -> None:
    pool = Pool()
    template = opened(pool, "Echo")
    pool.close()
    pool.close()
    with pytest.raises(PoolError, match="the pool is closed"):
        pool.template("handlers:Echo", {})
    with pytest.raises(PoolError, match="closed"):
        template.run([Job(1, {})])


def test_the_calling_process_imports_no_torch() -> None:
    code = "import sys, aggverify.world; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
