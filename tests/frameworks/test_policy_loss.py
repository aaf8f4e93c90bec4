"""A loss of log-probabilities and advantages: judged at ratio 1 by its weights, at others by
layouts alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from aggverify.checks import linearity, poison, scalar
from aggverify.checks.layout import MICRO_BATCHES
from aggverify.conventions import Offer, convention
from aggverify.errors import InputError
from aggverify.execution.claim import NONLINEAR, Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.run.opening import opened
from aggverify.run.planning.discovery import discovered
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from aggverify.world import Pool
from tests.choosing import LATER
from tests.conftest import EXAMPLES, Cli

MODULE = "tests.frameworks.policy_losses"
STEP = parse_step("2/1 3/101; 5/11 1/1011")
LOSSES = (0.0, 1.5, -2.0, 0.25, 0.0, 3.0, -1.0, 0.5, 2.0, -0.75)
CASE = Case(STEP, Layout(parse_micro_batches("0,1 3,2")), LOSSES)


@pytest.fixture(scope="module")
def ranks(shared_pool: Pool) -> Iterator[Executor]:
    with opened(shared_pool, {"module": MODULE}) as template:
        yield Executor(template)


def subject(function: str, mode: str = "token_mean") -> Subject:
    return Subject.of(Claim(f"{MODULE}:{function}", function, "policy-loss", "sum", mode))


@pytest.mark.covers(convention="policy-loss")
def test_weights_are_read_at_ratio_1(ranks: Executor) -> None:
    mine = subject("right")
    wanted = [*linearity.variants(CASE.trivial), *MICRO_BATCHES.variants(CASE)]
    done = ranks.run(mine, wanted)
    assert done[0].weights is not None
    assert done[0].weights.tolist() == [float(w) for w in mine.expected(STEP) or ()]
    assert linearity.judge(mine, done[:-2]) is None
    assert MICRO_BATCHES.judge(mine, done[-2:]) is None
    found = MICRO_BATCHES.judge(mine, ranks.run(subject("own_mean"), wanted[-2:]))
    assert found is not None and found.code == "AGV202"


def test_a_token_without_an_advantage_counts(ranks: Executor) -> None:
    mine = subject("only_with_advantage")
    found = linearity.judge(mine, ranks.run(mine, linearity.variants(CASE.trivial)))
    assert found is not None and found.code == "AGV131"


@pytest.mark.parametrize(
    ("function", "code"), [("scores", None), ("scores_before_the_division", scalar.CODE)]
)
def test_a_loss_may_report_log_probabilities_times_advantages(
    function: str, code: str | None, ranks: Executor
) -> None:
    mine = subject(function)
    case = CASE.without_zeros()
    assert linearity.judge(mine, ranks.run(mine, linearity.variants(case.trivial))) is None
    for dtype in ("float64", "bfloat16"):
        wanted = scalar.CHECK.variants(replace(case, dtype=dtype))
        found = scalar.judge(mine, ranks.run(mine, wanted))
        assert (found and found.code) == code, found


def test_a_term_without_an_advantage_is_no_finding_but_told(ranks: Executor) -> None:
    for name in ("right", "scores", "own_mean"):
        discovered(subject(name), ranks)
    with pytest.raises(InputError, match=r"no advantage multiplies.*\n?.*--mode nonlinear"):
        discovered(subject("with_a_penalty"), ranks)
    discovered(subject("with_a_penalty", NONLINEAR), ranks)


def test_what_is_behind_the_mask_is_exponentiated(ranks: Executor) -> None:
    wanted = poison.WITH_NANS.variants(CASE.trivial)
    assert poison.judge_not_finite(subject("right"), ranks.run(subject("right"), wanted)) is None
    mine = subject("masked_after_exp")
    found = poison.judge_not_finite(mine, ranks.run(mine, wanted))
    assert found is not None and found.code == "AGV124"
    huge = ranks.run(mine, poison.CHECK.variants(CASE.trivial))
    assert poison.judge_huge(mine, huge) is None


def test_other_ratios_are_compared_between_layouts_only(ranks: Executor) -> None:
    for name, right in (("right", True), ("clip_cov", False)):
        mine = subject(name, NONLINEAR)
        alone, spread = ranks.run(mine, [CASE.trivial, CASE])
        assert alone.weights is not None and len(set(np.abs(alone.weights))) > 3
        assert (MICRO_BATCHES.judge(mine, [alone, spread]) is None) is right


@pytest.mark.parametrize("other", ["old", "rollout", "ref"])
def test_what_the_note_says_of_ratios_is_what_is_run(other: str, ranks: Executor) -> None:
    """Such a loss raises where its ratio is no 1: never where weights are read, and elsewhere."""
    at_one, others = (subject(f"at_ratio_1_to_{other}", mode) for mode in ("token_mean", NONLINEAR))
    rest = CASE.with_losses((0.0,) * len(LOSSES))
    assert all(ran.failure is None for ran in ranks.run(at_one, [CASE.trivial, CASE]))
    assert [ran.failure is None for ran in ranks.run(others, [CASE, rest])] == [False, True]


def test_its_signature_is_recognised() -> None:
    how = convention("policy-loss")
    assert how.recognises(Offer("f", ("log_probs", "advantages", "batch")))
    assert not how.recognises(Offer("f", ("log_probs", "advantages", "mask")))
    needs = ("log_probs", "advantages", "batch", "eps")
    assert not how.recognises(Offer("f", needs, needs))
    assert any("no formula of clipping, TIS or KL is judged" in note for note in how.notes)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_every_token_has_an_advantage(dtype: str) -> None:
    case = Case(CASE.step, CASE.layout, LOSSES, dtype).without_zeros()
    least = 1.0 if dtype == "bfloat16" else 0.25
    assert min(map(abs, case.losses)) == least
    assert case.without_zeros() is case
    assert case.losses[1] == 1.5


BRIEF = ("--profile", "quick", "--world", "4", "--max-examples", "4")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "code", "more"),
    [
        ("token_mean.py", "", ()),
        LATER("token_mean.py", "", ("--mode", "nonlinear")),
        ("broken/own_mean.py", "AGV202", ()),
        LATER("broken/masked_after_exp.py", "AGV124", ()),
        LATER("broken/clip_cov.py", "AGV212", ()),
        LATER("off_policy_mask.py", "", ()),
        LATER("broken/off_policy_mask.py", "AGV211", ()),
    ],
)
def test_the_whole_check(cli: Cli, file: str, code: str, more: tuple[str, ...]) -> None:
    ran = cli("check", EXAMPLES / "policy_loss" / file, *BRIEF, *more)
    assert ran.code == bool(code), ran
    assert f"  {code}  " in ran.out if code else "PASS  " in ran.out
    assert "   policy-loss · " in ran.out
    assert "no formula of clipping, TIS or KL is judged" in " ".join(ran.out.split())
