"""Both roads give the numbers of golden.py; partial layouts give the wrong ones it is known for."""

from __future__ import annotations

from fractions import Fraction

import pytest
from mpmath import mp

from aggverify import oracles
from aggverify.oracles import Policy
from aggverify.oracles.coincidence import classes
from tests.oracle.drawing import step_of
from tests.oracle.golden import GOLDEN, SKYRL, SKYRL_OLD, TOY, TWINKLE, Golden


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda g: f"{g.mode}: {g.source}")
def test_golden(golden: Golden) -> None:
    step, policy = step_of(golden.step), Policy(**golden.policy)
    given = {"divisor": golden.divisor, "policy": policy}
    assert oracles.scalar(golden.mode, step, golden.losses, **given) == golden.expected
    told = oracles.scalar_mp(golden.mode, step, golden.losses, digits=30, **given)
    with mp.workdps(30):
        assert told == mp.mpf(golden.expected.numerator) / golden.expected.denominator


def test_every_golden_number_can_be_told_from_the_other_modes_or_is_known_not_to_be() -> None:
    # SkyRL's batch cannot tell prompt_mean from the mean over micro-batches of two rows, nor the
    # toy batch prompt_mean from sample_mean (one rollout per prompt); the other modes differ.
    assert classes(step_of(SKYRL[0]), oracles.MODES, divisor=2) == tuple(
        (name,) for name in oracles.MODES
    )
    toy = classes(step_of(TOY[0]), oracles.MODES, divisor=4)
    assert ("sample_mean", "prompt_mean") in toy and len(toy) == len(oracles.MODES) - 1


@pytest.mark.parametrize(
    ("text", "losses", "rows", "wrong"),
    [
        (*SKYRL_OLD, 1, Fraction("1.5")),
        (*SKYRL_OLD, 2, Fraction(1)),
        (*SKYRL_OLD, 4, Fraction(1)),
        (*TWINKLE, 1, Fraction(0)),
        (*TWINKLE, 2, Fraction("0.5")),
        (SKYRL[0].replace(";", " ;"), SKYRL[1], 2, Fraction("4.25")),
    ],
)
def test_the_published_wrong_numbers(
    text: str, losses: tuple[float, ...], rows: int, wrong: Fraction
) -> None:
    # A token mean per micro-batch of so many rows, averaged over micro-batches.
    step = step_of(text)
    means = []
    for start in range(0, len(step.samples), rows):
        part = oracles.Step(step.samples[start : start + rows])
        at = step.offsets[start]
        means.append(oracles.scalar("token_mean", part, losses[at : at + part.num_response_tokens]))
    assert sum(means, Fraction(0)) / len(means) == wrong
    legacy = f"token_mean_legacy({rows})"
    assert oracles.scalar(legacy, step, losses) == wrong
    with mp.workdps(30):
        told = oracles.scalar_mp(legacy, step, losses, digits=30)
        assert told == mp.mpf(wrong.numerator) / wrong.denominator
