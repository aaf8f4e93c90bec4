"""Properties every mode has, and the ones that tell the means from the sums."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggverify import oracles
from aggverify.oracles import MODES, OracleError, Policy, Sample, Step, mode, modes, translated
from aggverify.oracles.modes import Meaning
from aggverify.oracles.modes.names import names_of
from tests.oracle.drawing import divisor_for, losses, policies, step_of, steps

MEANS = ("sample_mean", "prompt_mean", "token_mean")
FRAMEWORKS = {
    *("slime", "miles", "SkyRL", "verl", "TRL", "OpenRLHF", "NeMo-RL", "AReaL", "ROLL"),
    *("prime-rl", "Tinker", "Megatron-LM"),
}
every_mode = pytest.mark.parametrize("name", MODES)
few = settings(max_examples=50)


def weights(name: str, step: Step, policy: Policy = oracles.DEFAULT_POLICY) -> list[Fraction]:
    return list(oracles.weights(name, step, divisor=divisor_for(name), policy=policy))


def per_sample(step: Step, flat: list[Fraction]) -> list[list[Fraction]]:
    ends = [*step.offsets[1:], step.num_response_tokens]
    return [flat[a:b] for a, b in zip(step.offsets, ends, strict=True)]


@every_mode
@few
@given(data=st.data())
def test_the_scalar_is_the_weighted_sum(name: str, data: st.DataObject) -> None:
    step, policy = data.draw(steps()), data.draw(policies)
    values = data.draw(losses(step))
    flat = weights(name, step, policy)
    expected = sum((w * Fraction(x) for w, x in zip(flat, values, strict=True)), Fraction(0))
    found = oracles.scalar(name, step, values, divisor=divisor_for(name), policy=policy)
    assert found == expected


@every_mode
@few
@given(step=steps(), policy=policies)
def test_weights_vanish_exactly_behind_the_mask(name: str, step: Step, policy: Policy) -> None:
    mask = b"".join(s.loss_mask for s in step.samples)
    flat = weights(name, step, policy)
    assert len(flat) == step.num_response_tokens
    assert all((w > 0) == bool(bit) for w, bit in zip(flat, mask, strict=True))


@pytest.mark.parametrize("name", MEANS)
@few
@given(step=steps(full=True))
def test_weights_of_means_sum_to_one(name: str, step: Step) -> None:
    assert sum(weights(name, step)) == 1


@pytest.mark.parametrize("name", MEANS)
@few
@given(step=steps(rejected=False))
def test_empty_units_take_their_share(name: str, step: Step) -> None:
    everything = {0: tuple(range(len(step.samples)))}
    units = {"sample_mean": step.rollouts, "prompt_mean": step.groups}.get(name, everything)
    full = sum(any(step.samples[i].num_unmasked for i in m) for m in units.values())
    assert sum(weights(name, step)) == Fraction(full, len(units))
    excluded = weights(name, step, Policy(empty_units="exclude"))
    assert sum(excluded) == (1 if full else 0)


@every_mode
@few
@given(step=steps(), policy=policies, rng=st.randoms(use_true_random=False))
def test_order_does_not_matter(name: str, step: Step, policy: Policy, rng: random.Random) -> None:
    order = list(range(len(step.samples)))
    rng.shuffle(order)
    shuffled = Step(tuple(step.samples[i] for i in order))
    before = per_sample(step, weights(name, step, policy))
    after = per_sample(shuffled, weights(name, shuffled, policy))
    assert after == [before[i] for i in order]


@every_mode
@few
@given(step=steps(), policy=policies, names=st.permutations(range(40)))
def test_ids_are_only_names(name: str, step: Step, policy: Policy, names: list[int]) -> None:
    renamed = Step(
        tuple(
            Sample(
                s.prompt_length + 1, s.loss_mask, names[s.rollout], names[s.group], s.original_mask
            )
            for s in step.samples
        )
    )
    assert weights(name, renamed, policy) == weights(name, step, policy)


@every_mode
@few
@given(data=st.data())
def test_splitting_a_sample_inside_its_rollout_changes_nothing(
    name: str, data: st.DataObject
) -> None:
    step = data.draw(steps())
    parts = []
    for s in step.samples:
        at = data.draw(st.integers(0, s.response_length))
        original = s.loss_mask if s.original_mask is None else s.original_mask
        for here in (slice(0, at), slice(at, None)):
            parts.append(Sample(1, s.loss_mask[here], s.rollout, s.group, original[here]))
    assert weights(name, Step(tuple(parts))) == weights(name, step)


@every_mode
@few
@given(step=steps(), policy=policies, where=st.integers(0, 9))
def test_masked_tokens_added_anywhere_change_nothing(
    name: str, step: Step, policy: Policy, where: int
) -> None:
    def widened(mask: bytes | None) -> bytes | None:
        return None if mask is None else mask[:where] + b"\0\0" + mask[where:]

    wider = Step(
        tuple(
            Sample(1, widened(s.loss_mask) or b"", s.rollout, s.group, widened(s.original_mask))
            for s in step.samples
        )
    )
    for s, old, new in zip(
        step.samples,
        per_sample(step, weights(name, step, policy)),
        per_sample(wider, weights(name, wider, policy)),
        strict=True,
    ):
        at = min(where, s.response_length)
        assert new == [*old[:at], 0, 0, *old[at:]]


@every_mode
@few
@given(data=st.data(), factor=st.fractions(max_denominator=99))
def test_scalars_are_linear(name: str, data: st.DataObject, factor: Fraction) -> None:
    step = data.draw(steps())
    x, y = ([Fraction(v) for v in data.draw(losses(step))] for _ in range(2))

    def scalar(values: list[Fraction]) -> Fraction:
        return oracles.scalar(name, step, values, divisor=divisor_for(name))

    combined = [factor * a + b for a, b in zip(x, y, strict=True)]
    assert scalar(combined) == factor * scalar(x) + scalar(y)


@given(step=steps(full=True), copies=st.integers(2, 3))
@few
def test_a_repeated_step_has_the_same_means(step: Step, copies: int) -> None:
    repeated = Step(
        tuple(
            Sample(1, s.loss_mask, s.rollout + 100 * c, s.group + 100 * c, s.original_mask)
            for c in range(copies)
            for s in step.samples
        )
    )
    for name in MEANS:
        assert weights(name, repeated) == [w / copies for w in weights(name, step)] * copies
    assert weights("token_sum", repeated) == weights("token_sum", step) * copies


@every_mode
def test_nothing_unmasked_weighs_nothing(name: str) -> None:
    step = step_of("00 0")
    assert weights(name, step) == [0, 0, 0]
    poison = [float("nan"), float("inf"), float("-inf")]
    assert oracles.scalar(name, step, poison, divisor=divisor_for(name)) == 0
    assert oracles.scalar_mp(name, step, poison, divisor=divisor_for(name)) == 0


@pytest.mark.parametrize(
    "bad", [None, 0, 0.0, -1.0, float("nan"), float("inf"), True, "8", Fraction(-1, 3), [8]]
)
def test_bad_divisors(bad: Any) -> None:
    for call in (
        lambda: oracles.weights("constant", step_of("1"), divisor=bad),
        lambda: oracles.scalar("constant", step_of("1"), [1.0], divisor=bad),
        lambda: oracles.scalar_mp("constant", step_of("1"), [1.0], divisor=bad),
        lambda: oracles.scalars(["constant"], step_of("1"), [1.0], divisor=bad),
    ):
        with pytest.raises(OracleError, match=r"divisor.*(positive finite number).*got"):
            call()


@pytest.mark.parametrize("good", [4, 4.0, Fraction(4)])
def test_divisors_of_every_kind(good: Any) -> None:
    assert oracles.weights("constant", step_of("1 1"), divisor=good)[0] == Fraction(1, 8)


def test_divisors_out_of_the_range_of_floats_are_exact() -> None:
    assert oracles.weights("constant", step_of("1"), divisor=10**400)[0] == Fraction(1, 10**400)
    tiny = Fraction(1, 10**400)
    assert oracles.weights("constant", step_of("1"), divisor=tiny)[0] == 10**400
    third = oracles.weights("constant", step_of("1"), divisor=0.1)[0]
    assert third == 1 / Fraction(0.1) != 10


def test_a_divisor_for_another_mode() -> None:
    with pytest.raises(OracleError, match=r"token_mean takes no divisor, got 4\.0"):
        oracles.weights("token_mean", step_of("1"), divisor=4.0)
    with pytest.raises(OracleError, match=r"token_mean takes no divisor, got 4"):
        oracles.scalar("token_mean", step_of("1"), [1.0], divisor=4)


@pytest.mark.parametrize("call", [oracles.scalar, oracles.scalar_mp])
def test_losses_must_fit_and_be_finite(call: Any) -> None:
    step = step_of("10")
    with pytest.raises(OracleError, match=r"the step has 2, got 1$"):
        call("token_mean", step, [1.0])
    with pytest.raises(OracleError, match="the step has 2, got 3"):
        call("token_mean", step, 3)
    for bad in (float("nan"), float("inf"), None, "1", True):
        with pytest.raises(OracleError, match=f"finite.*, got {bad!r}"):
            call("token_mean", step, [bad, 1.0])
    assert call("token_mean", step, [1.0, float("nan")]) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("promt_mean", "unknown mode 'promt_mean'; did you mean 'prompt_mean'"),
        ("vl_nrm", "did you mean 'vl_norm'"),
        ("zzz", r"unknown mode 'zzz' \(known: sample_mean, .*, pair_mean\)"),
        (None, "unknown mode None"),
        ("token_mean(1)", "unknown mode 'token_mean\\(1\\)'"),
    ],
)
def test_unknown_modes(name: Any, message: str) -> None:
    with pytest.raises(OracleError, match=message):
        mode(name)


@every_mode
def test_every_mode_says_what_it_is(name: str) -> None:
    found = mode(name)
    assert mode(found) is found and found.name == name
    assert found.formula and found.citation
    assert {*found.names, *found.remarks} <= FRAMEWORKS
    assert all(isinstance(names, tuple) for names in found.names.values())
    assert set(found.caveats) <= {n for names in found.names.values() for n in names}
    assert found.needs_divisor == (name == "constant")


def test_every_framework_is_named_somewhere() -> None:
    assert {f for m in MODES.values() for f in (*m.names, *m.remarks)} == FRAMEWORKS


@every_mode
def test_every_framework_s_name_is_the_mode(name: str) -> None:
    for framework, names in mode(name).names.items():
        for said in names:
            assert translated(said).mode == name
            assert said == name or framework in translated(said).frameworks
            other = said.replace("-", "_") if said[0] != "-" else said
            assert translated(other).mode == name


def test_what_a_name_means_is_said() -> None:
    assert translated("seq-mean-token-mean").sentence("seq-mean-token-mean") == (
        "verl's and ROLL's seq-mean-token-mean is sample_mean"
    )
    assert translated("sample-mean").sentence("sample-mean") == "sample-mean is sample_mean"
    assert translated("bnpo") == Meaning("token_mean_legacy", ("TRL",))
    assert translated("vl_norm(1/2)") == Meaning("vl_norm(1/2)")
    with pytest.raises(OracleError, match=r"did you mean 'seq-mean-token-mean' \(verl's"):
        mode("seq-mean-token-meen")


def test_a_name_of_several_modes_is_refused_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    here = replace(MODES["sample_mean"], names={"here": ("average",)})
    there = replace(MODES["token_mean"], names={"there": ("average",), "also": ("average",)})
    monkeypatch.setattr(modes, "NAMES", names_of([here, there]))
    message = "here's average is sample_mean; there's and also's average is token_mean"
    with pytest.raises(OracleError, match=message):
        translated("average")
