"""Every engine by name: a reducer that is right under it, and wrong under the one it deviates from;
what an engine does to a reducer that is right under the usual one is told as that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from aggverify.checks import check
from aggverify.checks.layout import COMBINED
from aggverify.engines import ENGINES, RealEngine, engine
from aggverify.execution.budget import Budget
from aggverify.execution.claim import Claim
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.run.opening import opened
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.search.runner import CheckRun
from aggverify.run.search.triage import explained
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout
from aggverify.steps.notation import parse_step
from aggverify.world import Pool

FILE = Path(__file__).with_name("deviating.py")
STEP = parse_step("1/11 2/1; 3/111; 1/00 1/1101")
BATCHES = (((0, 1), (2,)), ((3,), (4,)))
RIGHT = (
    ("gathered_sum", "skyrl-fsdp", "sum"),
    ("gathered_sum", "skyrl-megatron", "skyrl-megatron-0.2"),
    ("scaled_for_0_2", "skyrl-megatron-0.2", "skyrl-megatron"),
    ("two_outputs", "skyrl-megatron-raw", "skyrl-megatron"),
    ("per_token_chain", "megatron-token-raw", "megatron-token"),
    ("per_token_own_count", "megatron-token-raw", "megatron-token"),
    ("per_sample_chain", "megatron-sample-raw", "megatron-sample"),
    ("two_outputs", "megatron-two-output", "verl-megatron"),
    ("three_outputs", "megatron-three-output", "megatron-token-raw"),
    ("three_outputs_of_2025", "megatron-three-output-cp", "megatron-token-raw"),
    ("three_outputs_of_2025", "megatron-three-output-cp", "megatron-three-output"),
    ("with_phantoms", "megatron-token-phantom", "megatron-token"),
    ("without_count", "miles-fsdp", "megatron-token"),
    ("two_outputs", "deepspeed", "deepspeed-3"),
    ("over_all_ranks", "deepspeed-3", "deepspeed"),
    ("weighed", "areal", "sum"),
)


@pytest.fixture(scope="module")
def executor(shared_pool: Pool) -> Iterator[Executor]:
    with opened(shared_pool, {"path": str(FILE)}) as template:
        yield Executor(template)


def subject(function: str, name: str) -> Subject:
    few = Budget("quick", max_examples=2)
    return Subject.of(
        Claim(str(FILE), function, "native", name, "token_mean", max_world=4, budget=few)
    )


def cases(one: Subject) -> Sequence[Case]:
    """Alone, and on all layouts of four ranks and two micro-batches that its trainers have."""
    losses = tuple(float(n) for n in range(1, STEP.num_response_tokens + 1))
    kinds: tuple[CpKind, ...] = ("zigzag", "gathered")
    mine = [k for k in kinds if k not in one.engine.not_claimed]
    layouts = [Layout(BATCHES, cp_size=2, cp_kind=kind) for kind in mine]
    spread = [Case(STEP, layout, losses) for layout in (Layout(BATCHES), *layouts)]
    return [spread[0].trivial, *spread]


def wrong(one: Subject, done: Sequence[Execution]) -> list[bool]:
    assert [execution.failure for execution in done] == [None] * len(done)
    return [COMBINED.judge(one, [execution]) is not None for execution in done]


@pytest.mark.parametrize(
    ("function", "name", "other"),
    [pytest.param(*row, marks=pytest.mark.covers(engine=row[1])) for row in RIGHT],
)
def test_right_under_it_alone(executor: Executor, function: str, name: str, other: str) -> None:
    right = subject(function, name)
    ours = cases(right)
    assert not any(wrong(right, executor.run(right, ours)))
    elsewhere = subject(function, other)
    both = [case for case in ours if case in cases(elsewhere)]
    found = wrong(elsewhere, executor.run(elsewhere, both))
    # What a plain sum does of gathered losses, SkyRL on FSDP does by other means.
    assert any(found) == ((function, other) != ("gathered_sum", "sum"))


THOROUGH = pytest.mark.thorough


@pytest.mark.parametrize(
    ("function", "name", "told"),
    [
        ("per_token", "miles-fsdp", "what engine megatron-token asks for; this trainer never divi"),
        pytest.param("per_token", "megatron-token-phantom", "one token for ev", marks=THOROUGH),
        pytest.param(
            "per_token_own_count", "megatron-three-output", "by its own count", marks=THOROUGH
        ),
        pytest.param(
            "per_token_own_count", "megatron-three-output-cp", "cp_size and div", marks=THOROUGH
        ),
        pytest.param("gathered_sum", "skyrl-megatron-0.2", "by cp_size once more", marks=THOROUGH),
        pytest.param("two_outputs", "deepspeed-3", "over sequence-parallel ranks", marks=THOROUGH),
        # What is wrong with the reducer is not the engine's.
        pytest.param("weighed", "miles-fsdp", "", marks=THOROUGH),
    ],
)
def test_what_the_engine_does_is_told_as_that(
    executor: Executor, function: str, name: str, told: str
) -> None:
    mine = subject(function, name)
    empty = "empty_units_weigh_nothing" if "phantom" in name else COMBINED.name
    run = CheckRun(check(empty), mine, Space(), executor, RunStatistics())
    finding = next(filter(None, map(run.judge, cases(mine)[::-1])))
    diagnosis = explained(run, finding)
    assert diagnosis is not None
    assert diagnosis.bug is not None
    assert (diagnosis.bug.name == name) == bool(told)
    assert told in diagnosis.bug.sentence
    known = engine(name).deviates
    assert known is not None
    assert (diagnosis.bug.seen == known.seen) == bool(told)


def test_every_deviation_has_a_reducer_that_is_right_only_under_it() -> None:
    """Of formulas; a library's own is held to that which stands for it."""
    formulas = {n: spec for n, spec in ENGINES.items() if not isinstance(spec, RealEngine)}
    deviating = {name for name, spec in formulas.items() if spec.deviates is not None}
    rows = {name for _, name, other in RIGHT if other in _usual(name)}
    assert deviating == {name for name in rows if engine(name).deviates is not None}


def _usual(name: str) -> tuple[str, ...]:
    known = engine(name).deviates
    return () if known is None else known.usual
