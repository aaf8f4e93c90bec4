"""Engines and conventions on paper: what the scalars amount to, which cells are refused."""

from __future__ import annotations

from fractions import Fraction

import pytest

from aggverify.conventions import CONVENTIONS, Offer, convention
from aggverify.engines import ENGINES, Sizes, engine, usual
from aggverify.errors import InputError
from aggverify.oracles import MODES

SIZES = Sizes(dp_size=2, cp_size=3, num_microbatches=5, num_rollouts=7)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sum", Fraction(10)),
        ("mean", Fraction(10, 6)),
        ("accumulated-mean", Fraction(10, 30)),
        ("megatron-sample", Fraction(10, 7)),
        # counts arrive once per CP rank: 3 x 4 tokens, and the trainer multiplies by 3
        ("megatron-token", Fraction(10, 4)),
        ("skyrl-fsdp", Fraction(10, 3)),
        ("skyrl-megatron", Fraction(10)),
        ("skyrl-megatron-0.2", Fraction(30)),
        ("skyrl-megatron-raw", Fraction(10, 10)),
        ("verl-megatron", Fraction(10, 2)),
        ("areal", Fraction(20, 12)),
        ("megatron-token-raw", Fraction(10, 12)),
        ("megatron-sample-raw", Fraction(10, 30)),
        ("megatron-two-output", Fraction(10, 10)),
        ("megatron-three-output", Fraction(5, 30)),
        ("megatron-three-output-cp", Fraction(5, 10)),
        ("megatron-token-phantom", Fraction(10, 4)),
        ("miles-fsdp", Fraction(10, 2)),
        ("deepspeed", Fraction(10, 10)),
        ("deepspeed-3", Fraction(10, 30)),
    ],
)
def test_value_of_local_losses(name: str, expected: Fraction) -> None:
    losses = [Fraction(n) for n in (1, 2, 3, 4)]
    assert engine(name).value(losses, [2, 2] * 3, SIZES) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mean", Fraction(10, 6)),
        ("skyrl-fsdp", Fraction(10)),  # each rank's slice times 3 in the gather's backward
        # weights 2, 4, 2, 4, and each of the three copies counts its 12 tokens
        ("areal", Fraction(1 * 2 + 2 * 4 + 3 * 2 + 4 * 4, 36) * 3),
    ],
)
def test_value_of_copies_of_gathered_losses(name: str, expected: Fraction) -> None:
    """Two data-parallel ranks with two micro-batches; a loss counts once, whoever has a copy."""
    sizes = Sizes(2, 3, 2, 7, gathered=True)
    losses = [Fraction(n) for n in (1, 2, 3, 4)]
    assert engine(name).value(losses, [2, 4] * 6, sizes) == expected


def test_a_trainer_counts_as_its_engine_does() -> None:
    assert engine("megatron-token").counted([2, 0], None) == 2
    assert engine("megatron-token").counted([2, 0], 5) == 5
    assert engine("megatron-token-phantom").counted([2, 0], 5) == 3
    assert engine("ddp").counted([2, 0], None) == 2


def test_no_token_divides_by_one() -> None:
    assert engine("megatron-token").value([Fraction(0)], [0], SIZES) == 0


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'megatron-token'"):
        engine("megatron_token")
    with pytest.raises(InputError, match="did you mean 'native'"):
        convention("nativ")
    assert convention("miles") is convention("slime")


SLIME = ("total_lengths", "response_lengths", "loss_masks", "calculate_per_token_loss")
VERL = (
    *("loss_mat", "loss_mask", "loss_agg_mode", "dp_size"),
    *("batch_num_tokens", "global_batch_size", "loss_scale_factor"),
)
SLIME_CORE = (*SLIME[:3], "sample_denoms", "calculate_per_token_loss")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (("losses", "batch"), {"native"}),
        (SLIME, {"slime"}),
        # Its fourth positional argument means something else: never taken for the hook.
        (SLIME_CORE, {"slime-core"}),
        ((*SLIME, "qkv_format", "max_seq_lens", "denominators"), {"miles-core"}),
        # An older one, which does not take what verl's trainer passes today.
        (("loss_mat", "loss_mask", "loss_agg_mode", "dp_size"), set()),
        (VERL, {"verl"}),
        ((*VERL, "global_valid_samples"), {"verl", "roll"}),
        # Others have these, too: only under the framework's own name.
        (("data", "logprobs"), set()),
        (("self", "model", "inputs"), set()),
        ((*SLIME, "qkv_format", "max_seq_lens"), {"miles-core"}),
        (("loss", "loss_mask", "loss_reduction", "max_seq_len"), {"skyrl-reduce-loss"}),
        (("loss", "loss_mask"), set()),
        ((), set()),
    ],
)
def test_recognition(parameters: tuple[str, ...], expected: set[str]) -> None:
    offer = Offer("f", parameters)
    assert {c.name for c in CONVENTIONS.values() if c.recognises(offer)} == expected


RIGHT_THROUGH_THE_HOOK = {
    ("megatron-sample", "sample_mean"),
    ("megatron-sample", "constant"),
    ("megatron-sample", "sequence_sum"),
    ("megatron-token", "token_mean"),
}


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("mode", MODES)
def test_hook_cells(name: str, mode: str) -> None:
    refused = convention("slime").why_not(mode, name, frozenset())
    assert (refused is None) == ((usual(name), mode) in RIGHT_THROUGH_THE_HOOK)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("mode", MODES)
def test_the_native_signature_can_serve_every_cell(name: str, mode: str) -> None:
    assert convention("native").why_not(mode, name, frozenset()) is None


@pytest.mark.parametrize("c", CONVENTIONS.values(), ids=lambda c: c.name)
def test_the_default_engine_is_never_refused(c: object) -> None:
    from aggverify.conventions import Convention

    how: Convention = c  # type: ignore[assignment]
    offer = Offer("f", ("prompt_boundaries",))
    for mode in how.modes(offer):
        assert how.why_not(mode, how.default_engine(mode), {"whole-groups"}) is None
