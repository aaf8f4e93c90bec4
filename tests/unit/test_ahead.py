"""What is drawn and started before it is asked for is what is asked for then."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from aggverify.checks import CHECKS, real_engine
from aggverify.engines import closing
from aggverify.engines.mean import MEAN
from aggverify.execution.budget import Budget
from aggverify.execution.claim import Claim
from aggverify.execution.executor import Executor
from aggverify.execution.run_spec import REAL
from aggverify.execution.subject import Subject
from aggverify.run import ahead
from aggverify.run.outcome.events import CheckFinished, Event
from aggverify.run.outcome.verdict import Exit
from aggverify.run.planning.plan import looking_at_branches, plan
from aggverify.run.planning.request import Request
from aggverify.run.search import drawing
from aggverify.run.session import examine
from aggverify.world import Template
from tests.corpus.families import CORRECT
from tests.mutants.conftest import subject_of

BRANCHES = [check for check in CHECKS if check.looks_at_branches]
"""Asks many others, one after another."""
SOME = [check for check in CHECKS if check.name.startswith("independent_of_")]
"""Each has cases that it lists, and more that are drawn after them."""
SEED = 76_543
"""Of it and the next ones nothing is drawn elsewhere."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every time that Hypothesis is run."""
    drawing.stream.cache_clear()
    found: list[Any] = []
    inner = drawing._some.__wrapped__

    def some(*asked: Any) -> Any:
        found.append(asked)
        return inner(*asked)

    monkeypatch.setattr(drawing, "_some", drawing.lru_cache(maxsize=64)(some))
    return found


def _drawn(subject: Subject) -> None:
    for entry in plan(subject).entries:
        if entry.instead is None and entry.space is not None:
            asked = entry.check.draws(entry.space)
            list(islice(drawing.stream_of(subject).cases(asked, entry.examples), entry.examples))


@pytest.mark.parametrize(("mode", "seed"), [("token_mean", SEED), ("prompt_mean", SEED + 1)])
def test_a_reducer_in_the_usual_signature_finds_its_cases_drawn(
    mode: str, seed: int, calls: list[Any]
) -> None:
    request = Request("a.module", seed=seed)
    ahead.draw_ahead(request, CHECKS, lambda: False)
    before = len(calls)
    assert before > 10
    _drawn(Subject.of(Claim("r.py", "reduce", "native", "sum", mode, seed=seed)))
    assert len(calls) == before


@pytest.mark.parametrize("turns", [0, 1, 4, 20])
def test_nothing_more_is_drawn_once_ranks_can_be_had(turns: int, calls: list[Any]) -> None:
    """Nor among the thousands that one check may draw."""
    asked = count()
    request = Request("a.module", seed=SEED + 2 + turns, profile="thorough")
    ahead.draw_ahead(request, CHECKS, lambda: next(asked) >= turns)
    assert next(asked) == turns + 1
    assert len(calls) < 10


USUAL = "def reduce(losses: Tensor, batch: MicroBatch) -> Tensor: ..."


@pytest.mark.parametrize(
    ("text", "options", "drawn"),
    [
        (USUAL, {}, True),
        (USUAL, {"convention": "native"}, True),
        (USUAL.replace("(losses", "(\n    losses"), {}, True),
        (USUAL.replace("batch", "masks"), {}, False),
        (USUAL, {"convention": "verl"}, False),
        (USUAL, {"adapter": "adapter.py"}, False),
        (None, {}, False),
    ],
)
def test_nothing_is_drawn_for_another_signature(
    text: str | None, options: Any, drawn: bool, calls: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "reducer.py"
    if text is not None:
        path.write_text(text)
    ahead.draw_ahead(Request(str(path), seed=SEED - 1, **options), CHECKS[:6], lambda: False)
    assert bool(calls) is drawn


def test_lists_of_checks_that_draw_nothing_are_left_alone() -> None:
    def only(subject: Subject) -> list[Any]:
        raise AssertionError

    listing = [replace(check, only=only) for check in CHECKS if check.only is not None]
    assert len(listing) > 3
    ahead.draw_ahead(
        Request("a.module", profile="thorough", step="production"), listing, lambda: False
    )


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any]]:
    """What was started ahead, and of it what was asked for then."""
    kept: list[Any] = []
    taken: list[Any] = []
    begin_ahead, ask = Executor.begin_ahead, Executor.begun

    def keeping(self: Executor, *given: Any) -> None:
        kept.append(given[1])
        begin_ahead(self, *given)

    def taking(self: Executor, *given: Any) -> Any:
        found = ask(self, *given)
        taken.extend([given[1]] if found is not None else [])
        return found

    monkeypatch.setattr(Executor, "begin_ahead", keeping)
    monkeypatch.setattr(Executor, "begun", taking)
    return kept, taken


def _right(function: str, executor: Executor) -> Subject:
    return subject_of(next(e for e in CORRECT if e.function == function), executor)


def test_all_that_is_started_ahead_of_checks_that_pass_is_asked_for(
    executor: Executor, begun: tuple[list[Any], list[Any]]
) -> None:
    verdict = examine(_right("other_order", executor), executor, checks=SOME)
    assert verdict.exit is Exit.CONFORMS
    kept, taken = begun
    # A first look at each but the first, what each draws, and what each but the first lists.
    assert kept == taken and len(kept) == 3 * len(SOME) - 2


@pytest.mark.thorough
def test_of_those_that_look_at_branches_each_starts_the_next(
    executor: Executor, begun: tuple[list[Any], list[Any]]
) -> None:
    subject = _right("other_order", executor)
    assert examine(subject, executor, checks=[*BRANCHES, SOME[0]]).exit is Exit.CONFORMS
    kept, taken = begun
    looks = len(looking_at_branches(subject))
    # What the first check draws, each look but the first, what the other lists, what it draws.
    assert kept == taken and len(kept) == 1 + looks - 1 + 2


@pytest.mark.parametrize(
    ("engine", "profile", "begun_after"),
    [("mean", "ci", [2]), ("mean", "quick", []), ("sum", "ci", [])],
)
def test_the_library_s_engine_is_begun_half_way_where_a_check_runs_under_it(
    engine: str, profile: str, begun_after: list[int], executor: Executor, monkeypatch: Any
) -> None:
    """Here of checks that list nothing, so that none of its ranks is ever asked for."""
    finished: list[str] = []
    begun: list[int] = []
    monkeypatch.setattr(Executor, "begin_real", lambda self, subject: begun.append(len(finished)))

    def note(event: Event) -> None:
        if isinstance(event, CheckFinished):
            finished.append(event.summary.name)

    listing = [replace(check, only=lambda subject: ()) for check in (*SOME[:3], real_engine.CHECK)]
    subject = _right("other_order", executor).claiming(engine=engine, budget=Budget(profile))
    examine(subject, executor, note, checks=listing)
    assert len(finished) == len(listing)
    assert begun == begun_after


def test_ranks_under_the_library_s_engine_are_begun_once_and_only_where_it_is_at_hand(
    executor: Executor, monkeypatch: Any
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(Template, "begin_sibling", lambda self, setup: asked.append(setup))
    subject = _right("other_order", executor)
    alone = Executor(executor._template)
    for name in ("sum", "ddp", "mean"):
        alone.begin_real(subject.claiming(engine=name))
    engine = closing(MEAN)
    assert engine is not None and asked == [{"engine": engine.name}]
    alone._others[REAL] = alone
    alone.begin_real(subject.claiming(engine="mean"))
    assert len(asked) == 1
