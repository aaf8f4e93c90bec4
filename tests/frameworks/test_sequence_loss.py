"""Losses with one advantage a sequence: the weights are read off the gradient of an argument."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aggverify.checks import backward, formula, linearity, padding, poison, scalar
from aggverify.checks.arguments import LEFT_ALONE
from aggverify.checks.base import Check
from aggverify.checks.layout import DATA_PARALLEL, MICRO_BATCHES
from aggverify.execution.claim import NONLINEAR, Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.run.opening import opened
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from aggverify.world import Pool

MODULE = "tests.frameworks.sequence_losses"
ADAPTER = str(Path(__file__).with_name("adapters") / "sequence_loss.py")
STEP = parse_step("2/1 3/101; 5/11 1/1011")
CASE = Case(
    STEP,
    Layout(parse_micro_batches("0,1 3,2")),
    (0.0, 1.5, -2.0, 0.25, 0.0, 3.0, -1.0, 0.5, 2.0, -0.75),
)


@pytest.fixture(scope="module")
def ranks(shared_pool: Pool) -> Iterator[Executor]:
    with opened(shared_pool, {"module": MODULE}) as template:
        yield Executor(template)


def found(ranks: Executor, check: Check, function: str, mode: str = "sample_mean") -> str | None:
    mine = Subject.of(Claim(f"{MODULE}:{function}", function, ADAPTER, "sum", mode))
    case = CASE if check in (MICRO_BATCHES, DATA_PARALLEL) else CASE.trivial
    finding = check.judge(mine, ranks.run(mine, [*check.variants(case)]))
    return finding and finding.code


@pytest.mark.parametrize(
    ("function", "check", "code"),
    [
        ("right", formula.CHECK, None),
        ("right", linearity.CHECK, None),
        ("right", backward.CHECK, None),
        ("right", scalar.CHECK, None),
        ("right", MICRO_BATCHES, None),
        ("right", poison.WITH_NANS, None),
        ("right", padding.CHECK, None),
        ("FusedLoss", formula.CHECK, None),
        ("FusedLoss", backward.CHECK, None),
        ("FusedLoss", LEFT_ALONE, None),
        ("ShiftsInPlace", LEFT_ALONE, "AGV502"),
        ("padded_length", formula.CHECK, "AGV101"),
        ("padded_length", MICRO_BATCHES, "AGV202"),
        ("reports_a_token", formula.CHECK, None),
        ("reports_a_token", scalar.CHECK, "AGV102"),
        ("forgets_upstream", formula.CHECK, None),
        ("forgets_upstream", backward.CHECK, "AGV126"),
    ],
)
def test_what_is_found(ranks: Executor, function: str, check: Check, code: str | None) -> None:
    assert found(ranks, check, function) == code


def test_a_sample_has_one_loss(ranks: Executor) -> None:
    mine = Subject.of(Claim(f"{MODULE}:right", "right", ADAPTER, "sum", "sample_mean"))
    [ran] = ranks.run(mine, [CASE])
    assert ran.case.losses == (1.0, 1.5, -2.0, 1.5, 3.0, 3.0, 2.0, 0.5, 2.0, 2.0)
    assert ran.weights is not None
    assert ran.weights.tolist() == [float(w) for w in mine.expected(STEP) or ()]
    assert ran.value == (1 + 1.5 + 3 + 2) / 4


def test_other_ratios_are_the_same_in_every_layout(ranks: Executor) -> None:
    assert found(ranks, MICRO_BATCHES, "right", NONLINEAR) is None
    assert found(ranks, MICRO_BATCHES, "padded_length", NONLINEAR) == "AGV202"
