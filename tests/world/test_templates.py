"""Handlers that cannot be constructed, and handlers that cannot be forked."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aggverify.errors import InputError
from aggverify.world import Fault, Job, Options, Pool, Replies, Template, TemplateFailure
from tests.waiting import wait_until
from tests.world.conftest import HERE, opened


@pytest.fixture(scope="module")
def impatient() -> Iterator[Pool]:
    with Pool(Options(import_seconds=0.4, import_patience=0.2)) as pool:
        yield pool


def failure(pool: Pool, act: str, **setup: object) -> TemplateFailure:
    made = pool.template("handlers:FailsToStart", {"act": act, **setup}, paths=[HERE])
    assert isinstance(made, TemplateFailure)
    return made


def test_an_exception(pool: Pool) -> None:
    found = failure(pool, "raise_error", value=3)
    assert (found.kind, found.message) == ("exception", "ValueError: bad value 3")
    assert "raise ValueError" in found.traceback
    assert "aggverify/world" not in found.traceback


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        ("no_such_module:X", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("handlers:Missing", "AttributeError: module 'handlers' has no attribute 'Missing'"),
    ],
)
def test_a_handler_that_is_not_there(pool: Pool, handler: str, message: str) -> None:
    made = pool.template(handler, {}, paths=[HERE])
    assert isinstance(made, TemplateFailure)
    assert made.message == message


_PRELOADED = """
import gc, os
IMPORTED_IN = os.getpid()
class Handler:
    def __init__(self, setup): pass
    def describe(self): return {"early": IMPORTED_IN != os.getpid(), "collects": gc.isenabled()}
"""


@pytest.mark.usefixtures("own_launchers")
@pytest.mark.parametrize(
    ("module", "early"), [("preloaded", True), ("", False), ("no_such", False)]
)
def test_handlers_of_one_module_are_imported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, early: bool
) -> None:
    (tmp_path / "preloaded.py").write_text(_PRELOADED)
    monkeypatch.syspath_prepend(tmp_path)
    with Pool(Options(preload=module)) as pool:
        template = pool.template("preloaded:Handler", {})
        assert isinstance(template, Template), template
        assert template.description == {"early": early, "collects": True}
        again = pool.template("no_such:Handler", {})
        assert isinstance(again, TemplateFailure)
        assert again.message == "ModuleNotFoundError: No module named 'no_such'"


@pytest.mark.parametrize("handler", ["", "handlers", "handlers:", ":Echo"])
def test_a_name_that_is_none_is_refused(pool: Pool, handler: str) -> None:
    with pytest.raises(InputError, match="'module:Class'"):
        pool.template(handler, {})


def test_leaving_by_sys_exit(pool: Pool) -> None:
    found = failure(pool, "leave_by_sys_exit")
    assert (found.kind, found.message) == ("exception", "SystemExit: 3")


def test_death(pool: Pool) -> None:
    found = failure(pool, "leave", status=5)
    assert (found.kind, found.exit_status) == ("died", 5)
    assert found.message == "the process exited with status 5 while importing"


def test_a_crash_leaves_its_stack(pool: Pool) -> None:
    found = failure(pool, "segfault")
    assert (found.kind, found.exit_status) == ("died", -signal.SIGSEGV)
    assert "in segfault" in found.traceback


def test_output_of_megabytes_is_kept_to_its_tail(pool: Pool) -> None:
    found = failure(pool, "chatter", die=True)
    assert found.kind == "died"
    assert found.output.endswith("the last words of stderr\n")
    assert len(found.output) <= 8_000


def test_an_endless_loop(impatient: Pool) -> None:
    found = failure(impatient, "loop")
    assert (found.kind, found.message) == (
        "runaway",
        "the import took 0.4 s of processor time so far",
    )
    assert "in loop" in found.traceback


def test_an_endless_sleep(impatient: Pool) -> None:
    found = failure(impatient, "sleep", seconds=3600)
    assert (found.kind, found.message) == (
        "blocked",
        "the import sleeps or waits, for 0.2 s so far",
    )
    assert "in sleep" in found.traceback


def test_after_failures_the_pool_goes_on(pool: Pool) -> None:
    failure(pool, "leave", status=1)
    template = opened(pool, "Echo")
    assert isinstance(template.run([Job(2, {})])[0], Replies)
    template.close()


def test_templates_side_by_side(pool: Pool) -> None:
    one, two = opened(pool, "Echo", {"n": 1}), opened(pool, "Echo", {"n": 2})
    assert (one.description["setup"], two.description["setup"]) == ({"n": 1}, {"n": 2})
    pending = one.submit([Job(2, {})])
    assert isinstance(two.run([Job(2, {})])[0], Replies)
    assert isinstance(pending.wait()[0], Replies)
    one.close()
    assert isinstance(two.run([Job(1, {})])[0], Replies)
    two.close()


def test_a_handler_with_threads_is_imported_by_each_rank(pool: Pool) -> None:
    template = opened(pool, "StartsThread", {"n": 1})
    assert template.description == {"setup": {"n": 1}, "threads": 2}
    (outcome,) = template.run([Job(2, {})])
    assert isinstance(outcome, Replies)
    assert [reply.data for reply in outcome.replies] == [{"alive": True, "sum": 2.0}] * 2
    template.close()


def imported(outcome: object) -> bool:
    """Whether each rank has imported the handler for itself."""
    assert isinstance(outcome, Replies), outcome
    [one] = {reply.data["imported_here"] for reply in outcome.replies}
    return bool(one)


def test_a_native_thread_that_sleeps_costs_no_imports(pool: Pool) -> None:
    template, good = opened(pool, "LeavesNativeThread"), Job(2, {"act": "nothing"})
    assert not any(map(imported, template.run([good, good])))
    # What fails is believed once ranks with the thread have failed alike.
    bad = Job(2, {"act": "raise_error", "value": 3})
    outcomes = template.run([good, bad, good, bad])
    assert [isinstance(outcome, Fault) for outcome in outcomes] == [False, True, False, True]
    assert not any(map(imported, template.run([good])))
    template.close()


def test_a_native_thread_that_is_missed_is_had_again(pool: Pool) -> None:
    template, good = opened(pool, "LeavesNativeThread"), Job(2, {"act": "nothing"})
    needy = Job(2, {"act": "nothing", "needs": True})
    outcomes = template.run([good, needy, good, replace(needy, world=1)])
    assert [isinstance(outcome, Replies) for outcome in outcomes] == [True] * 4, outcomes
    assert [imported(outcomes[1]), imported(outcomes[3])] == [True, True]
    assert all(map(imported, template.run([good, needy])))
    template.close()


def test_a_world_that_cannot_start_is_the_outcome_of_its_jobs(pool: Pool) -> None:
    template = opened(pool, "FailsInRanks")
    outcomes = template.run([Job(2, {}), Job(1, {}), Job(2, {})])
    assert outcomes[0] == outcomes[2]
    assert outcomes[0].kind == "exception"  # type: ignore[union-attr]
    assert outcomes[0].rank == 1  # type: ignore[union-attr]
    assert "ValueError: not on rank 1 (while rank 1 started)" in outcomes[0].message  # type: ignore[union-attr]
    assert isinstance(outcomes[1], Replies)
    template.close()


@pytest.mark.parametrize("act", ["hog_memory", "hog_python_memory", "hog_the_last_of_memory"])
def test_an_import_without_bounds_ends_at_a_limit(act: str) -> None:
    with Pool(Options(import_memory=1 << 30)) as pool:
        found = failure(pool, act)
    assert found.kind == "exception"
    assert "MemoryError" in found.message or "can't allocate memory" in found.message
    assert f"in {act}" in found.traceback


def test_an_import_that_prints_without_end_is_ended(pool: Pool) -> None:
    setup = {"act": "print_without_end"}
    found = pool.template("handlers:FailsToStart", setup, paths=[HERE], more={"printed": 16 << 20})
    assert isinstance(found, TemplateFailure)
    assert (found.kind, found.message) == (
        "runaway",
        "the import prints without end: it has written more than 16 MiB",
    )
    assert "print_without_end" in found.traceback
    assert len(found.output) < 10_000


@pytest.mark.parametrize("name", ["close_streams", "close_stream_objects", "capture_streams"])
def test_an_import_that_closes_or_captures_its_streams(pool: Pool, name: str) -> None:
    template = opened(pool, "ActsWhenMade", {"act": name})
    # One rank only: the first death ends the world, and with it what others still have to say.
    chatter = Job(2, {"act": "chatter", "die": True, "on": [1]})
    outcomes = template.run([Job(2, {"act": "nothing"}), chatter])
    assert isinstance(outcomes[0], Replies), outcomes
    assert isinstance(outcomes[1], Fault)
    assert outcomes[1].output[1].endswith("last words of stdout\nthe last words of stderr\n")
    template.close()


_COUNTED = """
import os
class Handler:
    def __init__(self, setup):
        with open(setup["made"], "a") as file:
            file.write(f"{os.getpid()}\\n")
        if setup.get("fails"):
            raise ValueError("not today")
    def describe(self): return {"pid": os.getpid()}
"""


@pytest.fixture
def counted(pool: Pool, tmp_path: Path) -> Iterator[tuple[Template, Callable[[], list[int]]]]:
    """A template whose handler notes the process it is made in, and what is noted so far."""
    (tmp_path / "counted.py").write_text(_COUNTED)
    made = tmp_path / "made"
    template = pool.template("counted:Handler", {"made": str(made)}, paths=[str(tmp_path)])
    assert isinstance(template, Template), template
    yield template, lambda: list(map(int, made.read_text().split()))
    template.close()


Counted = tuple[Template, Callable[[], list[int]]]


def test_a_sibling_that_has_begun_is_the_one_that_is_waited_for(counted: Counted) -> None:
    template, made = counted
    for _ in range(2):
        template.begin_sibling({"more": 1})
    wait_until(lambda: len(made()) > 1)
    for setup, options, place in (
        ({"more": 2}, {}, 2),
        ({"more": 1}, {"cpu_seconds": 3.0}, 3),
        ({"more": 1}, {}, 1),
        ({"more": 1}, {}, 4),
    ):
        sibling = template.sibling(setup, options)
        assert isinstance(sibling, Template), sibling
        assert sibling.description["pid"] == made()[place]
    assert len(made()) == 5


def test_a_sibling_that_has_begun_and_fails_is_a_failure(counted: Counted) -> None:
    template, _ = counted
    template.begin_sibling({"fails": True})
    failed = template.sibling({"fails": True}, {})
    assert isinstance(failed, TemplateFailure)
    assert failed.message == "ValueError: not today"


def test_a_sibling_that_nobody_asks_for_ends_with_its_template(counted: Counted) -> None:
    template, made = counted
    template.begin_sibling({"more": 1})
    wait_until(lambda: len(made()) > 1)
    process = Path(f"/proc/{made()[1]}")
    assert process.exists()
    template.close()
    wait_until(lambda: not process.exists())
    assert not process.exists()
