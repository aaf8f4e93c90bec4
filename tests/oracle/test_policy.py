"""Every reading of what no paper settles: its weights by hand, its validation, its printing."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given

from aggverify import oracles
from aggverify.oracles import DEFAULT_POLICY, OracleError, Policy, Sample, Step
from aggverify.oracles.policy import QUESTIONS as POLICY_QUESTIONS
from aggverify.oracles.policy import READINGS as POLICY_READINGS
from tests.oracle.drawing import QUESTIONS, READINGS, policies, step_of

F = Fraction
EMPTY = step_of("11 0; 111; 00")
FAN_OUT = step_of("11+111 1111")
REJECTED = Step(
    (
        Sample(1, (1, 0, 0), 0, 0, original_mask=(1, 1, 0)),
        Sample(1, (1, 1), 1, 0),
        Sample(1, (0,), 2, 1, original_mask=(1,)),
    )
)
INCOMPLETE = step_of("11 1 1; 1111")

PAIRS = step_of("11 1; 111 10")
CASES = [
    ("sample_mean", EMPTY, {}, (F(1, 8), F(1, 12))),
    ("sample_mean", EMPTY, {"empty_units": "exclude"}, (F(1, 4), F(1, 6))),
    ("prompt_mean", EMPTY, {}, (F(1, 6), F(1, 9))),
    ("prompt_mean", EMPTY, {"empty_units": "exclude"}, (F(1, 4), F(1, 6))),
    ("sequence_sum", EMPTY, {}, (F(1, 4), F(1, 4))),
    ("sequence_sum", EMPTY, {"empty_units": "exclude"}, (F(1, 2), F(1, 2))),
    ("token_mean", EMPTY, {}, (F(1, 5), F(1, 5))),
    ("token_mean", EMPTY, {"phantom_tokens": "yes"}, (F(1, 7), F(1, 7))),
    ("constant", EMPTY, {}, (F(1, 40), F(1, 40))),
    ("constant", EMPTY, {"constant_count": "one"}, (F(1, 10), F(1, 10))),
    ("constant", EMPTY, {"constant_count": "valid_rollouts"}, (F(1, 20), F(1, 20))),
    ("sample_mean", FAN_OUT, {}, (F(1, 10), F(1, 10), F(1, 8))),
    ("sample_mean", FAN_OUT, {"several_samples": "sample"}, (F(1, 6), F(1, 9), F(1, 12))),
    (
        "sample_mean",
        FAN_OUT,
        {"several_samples": "samples_over_rollouts"},
        (F(1, 4), F(1, 6), F(1, 8)),
    ),
    (
        "sample_mean",
        FAN_OUT,
        {"several_samples": "mean_within_rollout"},
        (F(1, 8), F(1, 12), F(1, 8)),
    ),
    ("token_mean", REJECTED, {}, (F(1, 5), F(1, 5))),
    ("token_mean", REJECTED, {"denominators": "post_rejection"}, (F(1, 3), F(1, 3))),
    ("sample_mean", REJECTED, {}, (F(1, 6), F(1, 6))),
    ("sample_mean", REJECTED, {"denominators": "post_rejection"}, (F(1, 3), F(1, 6))),
    ("prompt_mean", INCOMPLETE, {}, (F(1, 8), F(1, 8), F(1, 8), F(1, 8))),
    (
        "prompt_mean",
        INCOMPLETE,
        {"prompt_count": "rollouts_over_group_size", "group_size": 3},
        (F(3, 16), F(3, 16), F(3, 16), F(3, 16)),
    ),
    ("pair_mean", PAIRS, {}, (F(1, 2), F(-1, 2), F(1, 2), F(-1, 2))),
    ("pair_mean", PAIRS, {"sequence": "mean"}, (F(1, 4), F(-1, 2), F(1, 6), F(-1, 2))),
]


@pytest.mark.parametrize(("mode", "step", "readings", "expected"), CASES)
def test_readings(
    mode: str, step: Step, readings: dict[str, Any], expected: tuple[Fraction, ...]
) -> None:
    divisor = 10 if mode == "constant" else None
    found = oracles.weights(mode, step, divisor=divisor, policy=Policy(**readings))
    starts = [
        start + s.loss_mask.index(1)
        for s, start in zip(step.samples, step.offsets, strict=True)
        if s.num_unmasked
    ]
    assert tuple(found[i] for i in starts) == expected


def test_the_cases_cover_every_reading() -> None:
    covered = {(q, r) for _, _, readings, _ in CASES for q, r in readings.items()}
    others = {(q, r) for q, rs in READINGS.items() for r in rs[1:]}
    assert others <= covered


def test_rollouts_over_group_size_is_too_large_by_p_g_over_n() -> None:
    step = step_of("1 11; 111; 1 1 1")  # P = 3, N = 6, G = 4
    wrong = Policy(prompt_count="rollouts_over_group_size", group_size=4)
    right = oracles.weights("prompt_mean", step)
    assert oracles.weights("prompt_mean", step, policy=wrong) == tuple(
        w * Fraction(3 * 4, 6) for w in right
    )


def test_empty_samples_inside_a_rollout() -> None:
    step = step_of("11+00 1")
    inside = Policy(several_samples="mean_within_rollout")
    assert oracles.weights("sample_mean", step, policy=inside)[0] == Fraction(1, 8)
    excluding = Policy(several_samples="mean_within_rollout", empty_units="exclude")
    assert oracles.weights("sample_mean", step, policy=excluding)[0] == Fraction(1, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"empty_units": "exclud"}, "must be one of count, exclude, got 'exclud'; did you mean"),
        ({"phantom_tokens": True}, "must be one of no, yes, got True$"),
        ({"group_size": 0}, "group_size must be a positive integer, got 0"),
        ({"group_size": 2.0}, "positive integer, got 2.0"),
        ({"group_size": True}, "positive integer, got True"),
        ({"prompt_count": "rollouts_over_group_size"}, "needs group_size, .* got None"),
    ],
)
def test_bad_policies(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OracleError, match=message):
        Policy(**arguments)


def test_from_text() -> None:
    typed = {"prompt_count": "rollouts_over_group_size", "group_size": "8", "empty_units": "count"}
    expected = Policy(prompt_count="rollouts_over_group_size", group_size=8)
    assert Policy.from_text(typed) == expected
    assert Policy.from_text({}) == DEFAULT_POLICY
    with pytest.raises(OracleError, match="unknown policy question 'empty_unit'; did you mean"):
        Policy.from_text({"empty_unit": "count"})
    with pytest.raises(OracleError, match="unknown policy question 'zzz' \\(known: empty_units, "):
        Policy.from_text({"zzz": "count"})
    for bad in ("many", "-1", "²"):
        with pytest.raises(OracleError, match=f"positive integer, got '{bad}'"):
            Policy.from_text({"group_size": bad})


@given(policies)
def test_every_policy_is_printed(policy: Policy) -> None:
    lines = policy.describe()
    assert lines == [f"{q}: {getattr(policy, q)}" for q in (*QUESTIONS, "group_size")]
    assert Policy.from_text(dict(line.split(": ") for line in lines)) == policy
    assert len(DEFAULT_POLICY.describe()) == len(QUESTIONS)


def every_step() -> list[Step]:
    """Steps on which each question has something to decide."""
    return [EMPTY, FAN_OUT, REJECTED, INCOMPLETE, step_of("11 0+0; 00"), step_of("11+0 1; 00 1")]


@pytest.mark.parametrize(
    "name", [*oracles.MODES, *oracles.FAMILIES, *oracles.PAIRED, "token_mean_legacy(2)"]
)
def test_a_mode_asks_exactly_the_questions_that_change_its_weights(name: str) -> None:
    divisor = F(5) if oracles.mode(name).needs_divisor else None
    weights = {
        answers: [
            oracles.weights(name, step, divisor=divisor, policy=policy) for step in every_step()
        ]
        for answers, policy in every_policy()
    }
    matter = {
        question
        for n, question in enumerate(READINGS)
        for answers, found in weights.items()
        for reading in READINGS[question]
        if weights[(*answers[:n], reading, *answers[n + 1 :])] != found
    }
    assert matter == set(oracles.mode(name).asks) - {"group_size"}


def every_policy() -> Iterator[tuple[tuple[str, ...], Policy]]:
    """Every combination of readings: some only matter together."""
    for answers in product(*READINGS.values()):
        readings = dict(zip(READINGS, answers, strict=True))
        yield answers, Policy.from_text({**readings, "group_size": "3"})


def test_only_the_questions_asked_are_described() -> None:
    assert DEFAULT_POLICY.describe(["prompt_count"]) == ["prompt_count: present"]
    assert DEFAULT_POLICY.describe([]) == []
    assert set(POLICY_QUESTIONS) == {*QUESTIONS, "group_size"}
    for question, readings in POLICY_READINGS.items():
        assert getattr(DEFAULT_POLICY, question) == readings[0]
