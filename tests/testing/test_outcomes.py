"""What becomes of a test: passed, failed, skipped or an error, and what it says."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable

import pytest

from aggverify.checks import Check
from aggverify.run.planning.request import Request
from aggverify.testing import ranks
from aggverify.world import Pool, linux
from tests.cli.test_compiled import WRONG, reducer
from tests.conftest import EXAMPLES
from tests.testing.conftest import WITHIN, Suite

TOLD_ITS_MODE = """
def apply_loss_reduction_to_advantages_minibatch(
    advantages, loss_mask, loss_reduction, micro_batch_size, max_seq_len
):
    if loss_reduction == "token_mean":
        return advantages / loss_mask.sum().clamp(min=1)
    return advantages / (len(loss_mask) * max_seq_len)


def reduce_loss(loss, loss_mask):
    return (loss * loss_mask).sum()
"""
TYPO = """
def reduce(losses, batch):
    return losses.summ() / batch.num_tokens
"""


def test_a_typo_is_told_once_by_each_line(suite: Suite) -> None:
    made = suite(
        "test_all = aggverify.conformance('typo.py', modes='token_mean', checks=["
        "'linear_in_the_losses', 'weights_are_the_modes', 'padding_changes_nothing',"
        " 'claims_are_not_refused'])",
        "test_one = aggverify.conformance('typo.py', modes='sample_mean',"
        " checks='linear_in_the_losses')",
        "test_gone = aggverify.conformance('gone.py',"
        " checks=['linear_in_the_losses', 'weights_are_the_modes'])",
    )
    (made.path / "typo.py").write_text(TYPO)
    (made.path / "gone.py").write_text("import nowhere_at_all\n")
    ran = made.runpytest_inprocess(*WITHIN, "-rs")
    ran.assert_outcomes(failed=2, errors=1, skipped=4)
    why = (
        "typo.py: AGV401 Raises an exception: rank 0: AttributeError: 'Tensor' object has no "
        "attribute 'summ'"
    )
    gone = "gone.py: cannot import *gone.py: ModuleNotFoundError: No module named 'nowhere_at_all'"
    ran.stdout.fnmatch_lines(
        [
            "*_ ERROR at setup of test_gone[[]linear_in_the_losses[]] _*",
            gone,
            "*_ test_all[[]token_mean-linear_in_the_losses[]] _*",
            "*return losses.summ() / batch.num_tokens",
            "*= aggverify =*",
            "typo.py · token_mean*",
            "    broke *linear*, *weights*, *padding* and 1 more (case *)",
            "typo.py · sample_mean*",
            "    broke *test_one*",
            gone,
            '  File "*gone.py", line 1, in <module>',
            "  not judged: *test_gone*, *test_gone*",
            f"SKIPPED [[]3[]] *: not judged, as another test fails: {why}",
            f"SKIPPED [[]1[]] *: not judged, as another test reports: {gone}",
        ]
    )
    out = ran.stdout.str()
    assert out.count("return losses.summ() / batch.num_tokens") == 2
    assert out.count("import nowhere_at_all") == 1
    assert "During handling" not in out


def test_a_reducer_that_is_told_its_mode(suite: Suite) -> None:
    made = suite(
        "CHECKS = ['weights_are_the_modes', 'switching_the_mode_changes_the_weights']",
        "test_unsaid = aggverify.conformance('told.py', checks=CHECKS[:1])",
        "test_said = aggverify.conformance('told.py', modes=['token_mean', 'constant'],"
        " divisor=16.0, checks=CHECKS, max_examples=1, world=1)",
    )
    (made.path / "told.py").write_text(TOLD_ITS_MODE)
    ran = made.runpytest_inprocess(*WITHIN)
    ran.assert_outcomes(passed=4, errors=1)
    ran.stdout.fnmatch_lines(
        ["told.py: apply_loss* has several modes: say modes=[[]'token_mean', *'constant'[]]"]
    )


@pytest.mark.thorough
def test_hazards_pass_and_refusals_are_skipped(suite: Suite) -> None:
    made = suite(
        "test_hazard = aggverify.conformance('multiply_by_mask.py', max_examples=1, world=1,"
        " checks=['masked_nans_never_matter'])",
        "test_refusing = aggverify.conformance('refusing.py', max_examples=1, world=2,"
        " checks=['independent_of_context_parallel_size'])",
        "test_against = aggverify.conformance('right.py', against='wrong.py', max_examples=1,"
        " checks=['two_paths_agree'], world=2)",
    )
    shutil.copy(EXAMPLES / "hazards" / "multiply_by_mask.py", made.path)
    right = (made.path / "right.py").read_text()
    refuses = "    if batch.cp_size > 1:\n        raise ValueError('no context parallelism here')\n"
    body = "def reduce(losses, batch):\n"
    (made.path / "refusing.py").write_text(right.replace(body, body + refuses))
    ran = made.runpytest_inprocess(*WITHIN, "-rs")
    ran.assert_outcomes(passed=1, skipped=1, failed=1)
    ran.stdout.fnmatch_lines(
        [
            "*_ test_against[[]two_paths_agree[]] _*",
            "right.py:* · against wrong.py",
            "  reproduce    aggverify replay * right.py --against wrong.py",
            "multiply_by_mask.py*",
            "    hazard: right where that never happens*",
            "    seen in *test_hazard*",
            "  PASS  *",
            "SKIPPED*refused: *no context parallelism here*",
        ]
    )


def test_what_is_disclaimed_is_skipped_though_it_is_all_a_test_has(suite: Suite) -> None:
    """As in the file that ``aggverify new`` writes, where each check is a test."""
    made = suite(
        "test_mine = aggverify.conformance('mine.py', modes='token_mean', engine='sum', checks=["
        "'independent_of_context_parallel_size', 'two_paths_agree', 'weights_are_the_modes'],"
        " without=['context-parallel'])"
    )
    shutil.copy(EXAMPLES / "native" / "sum" / "token_mean.py", made.path / "mine.py")
    ran = made.runpytest_inprocess(*WITHIN, "-rs")
    ran.assert_outcomes(passed=1, skipped=2)
    ran.stdout.fnmatch_lines(["*not claimed: disclaimed by --without*", "*no --against TARGET*"])


def test_a_machine_without_ranks_is_an_error(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    made = suite("test_it = aggverify.conformance('right.py', checks=['linear_in_the_losses'])")
    monkeypatch.setattr(linux, "unsupported", lambda: "needs Linux")
    ran = made.runpytest_inprocess(*WITHIN)
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(["right.py: needs Linux"])


@pytest.mark.thorough
def test_compiled_everywhere_where_that_is_said(suite: Suite) -> None:
    made = suite(
        "HOW = dict(checks=['weights_are_the_modes'], max_examples=1, world=1)",
        "test_eager = aggverify.conformance('r.py', **HOW)",
        "test_compiled = aggverify.conformance('r.py', compile=True, **HOW)",
    )
    reducer(made.path, WRONG)
    ran = made.runpytest_inprocess(*WITHIN)
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(["*_ test_compiled[[]weights_are_the_modes[]] _*"])


HANGS = "__import__('time').sleep(600)\n"


@pytest.mark.parametrize(
    ("name", "text", "seconds", "why"),
    [
        ("right.py", HANGS, "2", "--max-time was over before anything could be judged"),
        pytest.param(
            "oracle.py",
            f"def weights(step):\n    {HANGS}",
            "5",
            "right.py: not judged: out of time",
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["an_import", "an_oracle"],
)
def test_what_takes_too_long_is_an_error_in_time(
    suite: Suite, name: str, text: str, seconds: str, why: str
) -> None:
    made = suite(
        "test_it = aggverify.conformance('right.py', checks='weights_are_the_modes',"
        " oracle='oracle.py')"
    )
    (made.path / "oracle.py").write_text("def weights(step):\n    return []\n")
    (made.path / name).write_text(text)
    ran = made.runpytest_inprocess(*WITHIN, "--aggverify-max-time", seconds)
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines([f"*{why}"])
    assert ran.duration < 50


def test_what_tests_ask_for_is_drawn_while_torch_is_imported(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[list[str], bool]] = []

    def drawing(request: Request, checks: Iterable[Check], is_enough: Callable[[], bool]) -> None:
        drawn.append(([check.name for check in checks], is_enough()))

    monkeypatch.setattr(ranks, "draw_ahead", drawing)
    monkeypatch.setattr(Pool, "ready", False)
    names = ["weights_are_the_modes", "linear_in_the_losses"]
    made = suite(f"test_it = aggverify.conformance('right.py', checks={names})")
    (made.path / "right.py").write_text("1 / 0\n")
    made.runpytest_inprocess(*WITHIN).assert_outcomes(errors=1, skipped=1)
    assert [sorted(asked) for asked, _ in drawn] == [sorted(names)]
    assert not drawn[0][1]
