"""A person's own oracle: what it may give, and what it is told when it gives something else."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggverify import oracles
from aggverify.oracles import OracleError, Step
from aggverify.oracles.custom import CustomOracle, load
from tests.oracle.drawing import losses, step_of, steps

Write = Callable[[str], Path]

TOKEN_MEAN = """
from fractions import Fraction

def weights(step):
    share = Fraction(1, max(step.num_unmasked, 1))
    return [share * bit for s in step.samples for bit in s.loss_mask]
"""
SAMPLE_MEAN = """
def scalar(step, losses):
    total = 0
    for members in step.rollouts.values():
        kept = [
            losses[step.offsets[i] + t]
            for i in members
            for t, bit in enumerate(step.samples[i].loss_mask)
            if bit
        ]
        total += sum(kept) / max(len(kept), 1)
    return total / step.num_rollouts
"""
STEP = step_of("110 1; 01")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str) -> Path:
        path = tmp_path / "my_mode.py"
        path.write_text(text)
        return path

    return written


@pytest.mark.parametrize(
    ("text", "mode"), [(TOKEN_MEAN, "token_mean"), (SAMPLE_MEAN, "sample_mean")]
)
def test_ten_lines_make_a_mode(write: Write, text: str, mode: str) -> None:
    own = load(write(text))
    assert own.name == "my_mode.py"
    for step in (STEP, step_of("1"), step_of("00; 0")):
        assert own.weights(step) == oracles.weights(mode, step)


@settings(max_examples=40)
@given(data=st.data())
def test_scalars_of_ones_own(data: st.DataObject) -> None:
    step = data.draw(steps(rejected=False))
    values = data.draw(losses(step))
    own = CustomOracle("mine", lambda s: oracles.weights("prompt_mean", s))
    expected = oracles.scalar("prompt_mean", step, values)
    assert own.scalar(step, values) == expected
    assert own.scalar(step, np.array(values, dtype=np.float64)) == expected


def test_numbers_are_taken_for_what_they_are(write: Write) -> None:
    own = load(write("def weights(step):\n    return (0.5, 2, 0)\n"))
    assert own.weights(step_of("110")) == (Fraction(1, 2), 2, 0)
    assert own.scalar(step_of("110"), [3, Fraction(1, 7), math.nan]) == Fraction(25, 14)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return [1]", "one weight per response token, flat over all samples: 6, got 1"),
        ("return 3", "must give a flat sequence of weights, got 3"),
        ("return '110101'", "must give a flat sequence of weights, got '110101'"),
        ("return None", "must give a flat sequence of weights, got None"),
        ("return [[1, 1, 0]] * 6", r"must give finite numbers, got \[1, 1, 0\]"),
        ("return ['1'] * 6", "must give finite numbers, got '1'"),
        ("return [float('nan')] * 6", "must give finite numbers, got nan"),
        ("return [True] * 6", "must give finite numbers, got True"),
        ("return [1] * 6", "gives the masked token 2 the weight 1; masked tokens weigh 0"),
        ("return 1 / 0", "my_mode.py raised ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "my_mode.py raised SystemExit: 3"),
        ("return oops", "my_mode.py raised NameError"),
    ],
)
def test_weights_that_cannot_be_used(write: Write, body: str, message: str) -> None:
    own = load(write(f"def weights(step):\n    {body}\n"))
    with pytest.raises(OracleError, match=message):
        own.weights(STEP)


def test_an_oracle_that_changes_its_mind(write: Write) -> None:
    own = load(
        write(
            "calls = []\ndef weights(step):\n    calls.append(1)\n"
            "    return [len(calls)] * step.num_response_tokens\n"
        )
    )
    with pytest.raises(OracleError, match=r"not deterministic: .* gave \(1, 1\) and then \(2, 2\)"):
        own.weights(step_of("11"))
    with pytest.raises(OracleError, match=r"gave \(3, 3, 3, 3, 3, 3, \.\.\.\) and then"):
        own.weights(step_of("1111111"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return sum(losses) ** 2", "is not linear in the losses"),
        ("return sum(abs(x) for x in losses)", "is not linear in the losses"),
        ("return sum(max(x, -1) for x in losses)", "is not linear in the losses"),
        ("return sum(min(x, 5) for x in losses)", "is not linear in the losses"),
        ("return max(losses)", "is not linear in the losses"),
        ("return sum(losses) + 1", "all-zero losses must be 0, got 1"),
        ("return [1]", r"must give finite numbers, got \[1\]"),
        ("return sum(losses)", "masked token 2 the weight 1"),
    ],
)
def test_scalars_that_cannot_be_probed(write: Write, body: str, message: str) -> None:
    own = load(write(f"def scalar(step, losses):\n    {body}\n"))
    with pytest.raises(OracleError, match=message):
        own.weights(STEP)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weights = 3\n", "defines neither weights"),
        ("def weights(step)\n", "cannot run .*: SyntaxError"),
        ("import nowhere_at_all\n", "cannot run .*: ModuleNotFoundError"),
        ("raise SystemExit(2)\n", "cannot run .*: SystemExit: 2"),
    ],
)
def test_files_that_cannot_be_used(write: Write, text: str, message: str) -> None:
    with pytest.raises(OracleError, match=message):
        load(write(text))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(OracleError, match=r"no such oracle file: .*gone\.py"):
        load(tmp_path / "gone.py")


def test_errors_of_the_oracles_pass_through() -> None:
    def refuses(step: Step) -> object:
        return oracles.weights("constant", step)

    with pytest.raises(OracleError, match="mode constant needs a divisor"):
        CustomOracle("mine", refuses).weights(STEP)
