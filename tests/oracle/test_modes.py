"""Properties of the exact weights, and the two roads against each other."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

import oracles
from aggverify.notation import parse_step
from aggverify.strategies import Space, losses, steps
from oracles import MODES, OracleError, Policy, Sample, Step

ANY = Space(fan_out=True)
HINTS = get_type_hints(Policy)
policies = st.builds(
    Policy,
    **{
        f.name: st.integers(1, 4)
        if f.name == "group_size"
        else st.sampled_from(get_args(HINTS[f.name]))
        for f in fields(Policy)
    },
)
MEANS = ("sample_mean", "prompt_mean", "token_mean")


def divisor(mode: str) -> float | None:
    return 16.0 if MODES[mode].needs_divisor else None


@pytest.mark.parametrize("mode", MODES)
@given(data=st.data())
def test_two_roads_agree(mode: str, data: st.DataObject) -> None:
    step = data.draw(steps(space=ANY))
    values = data.draw(losses(step))
    policy = data.draw(policies)
    digits = data.draw(st.sampled_from([15, 50, 120]))
    exact = oracles.scalar(mode, step, values, divisor=divisor(mode), policy=policy)
    told = oracles.scalar_mp(
        mode, step, values, digits=digits, divisor=divisor(mode), policy=policy
    )
    with mp.workdps(digits):
        assert told == mp.mpf(exact.numerator) / exact.denominator


@pytest.mark.parametrize("mode", MODES)
@given(data=st.data())
def test_the_scalar_is_the_weighted_sum(mode: str, data: st.DataObject) -> None:
    step = data.draw(steps(space=ANY))
    values = data.draw(losses(step))
    weights = oracles.weights(mode, step, divisor=divisor(mode))
    total = sum((w * Fraction(x) for w, x in zip(weights, values, strict=True)), Fraction(0))
    assert oracles.scalar(mode, step, values, divisor=divisor(mode)) == total


@pytest.mark.parametrize("mode", MEANS)
@given(step=steps(space=Space(fan_out=True, empty_samples=False)))
def test_weights_of_means_sum_to_one(mode: str, step: Step) -> None:
    assert sum(oracles.weights(mode, step)) == 1


@pytest.mark.parametrize("mode", MEANS)
@given(step=steps(space=ANY))
def test_empty_units_take_their_share(mode: str, step: Step) -> None:
    units = {"sample_mean": step.rollouts, "prompt_mean": step.groups}.get(
        mode, {0: tuple(range(len(step.samples)))}
    )
    full = sum(any(step.samples[i].num_unmasked for i in m) for m in units.values())
    assert sum(oracles.weights(mode, step)) == Fraction(full, len(units))
    excluded = oracles.weights(mode, step, policy=Policy(empty_units="exclude"))
    assert sum(excluded) == (1 if full else 0)


@pytest.mark.parametrize("mode", MODES)
@given(step=steps(space=ANY), seed=st.randoms())
def test_order_does_not_matter(mode: str, step: Step, seed: object) -> None:
    order = list(range(len(step.samples)))
    seed.shuffle(order)  # type: ignore[attr-defined]
    shuffled = Step(tuple(step.samples[i] for i in order))
    before = oracles.weights(mode, step, divisor=divisor(mode))
    after = oracles.weights(mode, shuffled, divisor=divisor(mode))
    for position, i in enumerate(order):
        length = step.samples[i].response_length
        a, b = step.offsets[i], shuffled.offsets[position]
        assert before[a : a + length] == after[b : b + length]


@pytest.mark.parametrize("mode", MODES)
@given(step=steps(space=ANY))
def test_masked_tokens_added_at_the_end_change_nothing(mode: str, step: Step) -> None:
    longer = Step(
        tuple(
            Sample(s.prompt_length, s.loss_mask + b"\0\0", s.rollout, s.group) for s in step.samples
        )
    )
    before = oracles.weights(mode, step, divisor=divisor(mode))
    after = oracles.weights(mode, longer, divisor=divisor(mode))
    assert sorted(filter(None, before)) == sorted(filter(None, after))
    assert len(after) == len(before) + 2 * len(step.samples)


def test_nothing_unmasked_weighs_nothing() -> None:
    step = parse_step("1/00 1/0")
    for mode in MODES:
        weights = oracles.weights(mode, step, divisor=divisor(mode))
        assert weights == (0, 0, 0)
        assert oracles.scalar(mode, step, [float("nan")] * 3, divisor=divisor(mode)) == 0


def test_rejected_tokens_stay_in_the_denominator_by_default() -> None:
    step = Step((Sample(1, (1, 0, 0), 0, 0, original_mask=(1, 1, 0)),))
    assert oracles.weights("token_mean", step)[0] == Fraction(1, 2)
    later = Policy(denominators="post_rejection")
    assert oracles.weights("token_mean", step, policy=later)[0] == 1


def test_phantom_tokens() -> None:
    step = parse_step("1/11 1/0")
    assert oracles.weights("token_mean", step)[0] == Fraction(1, 2)
    policy = Policy(phantom_tokens="yes")
    assert oracles.weights("token_mean", step, policy=policy)[0] == Fraction(1, 3)


@pytest.mark.parametrize("bad", [None, 0, -1.0, float("nan"), float("inf"), True, "8"])
def test_bad_divisors(bad: object) -> None:
    with pytest.raises(OracleError, match="divisor"):
        oracles.weights("constant", parse_step("1/1"), divisor=bad)  # type: ignore[arg-type]


def test_a_divisor_for_another_mode() -> None:
    with pytest.raises(OracleError, match=r"token_mean takes no divisor, got 4\.0"):
        oracles.weights("token_mean", parse_step("1/1"), divisor=4.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, (1,), 0, 0), "prompt_length must be a non-negative integer, got -1"),
        ((1.5, (1,), 0, 0), "got 1.5"),
        ((1, (1, 2), 0, 0), "0 and 1 only, got 2"),
        ((1, b"\1\7", 0, 0), "0 and 1 only, got 7"),
        ((1, ((1,), (0,)), 0, 0), "flat sequence"),
        ((1, "10", 0, 0), "flat sequence"),
        ((1, (1,), -1, 0), "rollout must be a non-negative integer, got -1"),
        ((1, (1,), 0, True), "group must be a non-negative integer, got True"),
        ((1, (1,), 0, 0, (1, 1)), "1 tokens, got 2"),
    ],
)
def test_bad_samples(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(OracleError, match=message):
        Sample(*arguments)  # type: ignore[arg-type]


def test_bad_steps() -> None:
    with pytest.raises(OracleError, match="at least one sample"):
        Step(())
    with pytest.raises(OracleError, match="Sample objects, got 3"):
        Step((3,))  # type: ignore[arg-type]
    with pytest.raises(OracleError, match="rollout 0 belongs to one prompt group"):
        Step((Sample(1, (1,), 0, 0), Sample(1, (1,), 0, 1)))


def test_losses_must_fit_and_be_finite() -> None:
    step = parse_step("1/10")
    with pytest.raises(OracleError, match="the step has 2, got 1"):
        oracles.scalar("token_mean", step, [1.0])
    with pytest.raises(OracleError, match="finite, got nan"):
        oracles.scalar("token_mean", step, [float("nan"), 1.0])
    assert oracles.scalar("token_mean", step, [1.0, float("nan")]) == 1


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(OracleError, match="did you mean 'prompt_mean'"):
        oracles.mode("promt_mean")
    with pytest.raises(OracleError, match="did you mean 'exclude'"):
        Policy(empty_units="exclud")  # type: ignore[arg-type]


def test_json_round_trip() -> None:
    step = Step((Sample(1, (1, 0), 0, 0, original_mask=(1, 1)), Sample(0, (1,), 1, 0)))
    assert Step.from_json(step.to_json()) == step
