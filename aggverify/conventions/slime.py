"""The custom reducer hook of slime and miles: ``get_pg_loss_reducer``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from aggverify.conventions.base import Bound, Misuse, Output, Site, mask_tensor
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.misuses import SLIME
from aggverify.engines import usual

if TYPE_CHECKING:
    from torch import Tensor

_ARGUMENTS = ("total_lengths", "response_lengths", "loss_masks", "calculate_per_token_loss")
_NO_COUNTS = "the hook receives no step totals (no N, P, token count or ids)"
_RIGHT = {
    "megatron-sample": ("sample_mean", "constant", "sequence_sum"),
    "megatron-token": ("token_mean",),
}
"""Modes that are right whatever the step; prompt_mean is only under a promise about its groups."""


def _not_claimed() -> dict[str, str]:
    return {
        "contiguous": "slime re-slices all-gather CP to zigzag before the reducer runs",
        "gathered": "slime never gathers losses over CP before the reducer runs",
        "straddling-groups": "the hook does not receive prompt groups or their token totals",
        "fan-out": "the hook does not receive the token totals of rollouts with several samples",
        "rejection": "the hook receives the modified masks only",
        "validates-arguments": "slime and miles call their hooks with what they made themselves",
    }


@dataclass(frozen=True, slots=True)
class SlimeHook:
    """A factory called positionally once per micro-batch and rank, with full-length masks.

    It returns a callable that maps the concatenated local zigzag pieces to the rank's sum. CP rank
    and size come from ``megatron.core.mpu``.
    """

    name: str = "slime"
    title: str = "slime / miles custom reducer hook"
    usual_name: str = "get_pg_loss_reducer"
    signature: str = (
        "def get_pg_loss_reducer(total_lengths, response_lengths, loss_masks, "
        "calculate_per_token_loss=False) -> Callable[[Tensor], Tensor]"
    )
    returns: str = (
        "a function of the losses (1-D, this rank's pieces concatenated) that returns a "
        "floating-point tensor of one element that depends on them"
    )
    mode_is_argument: bool = False
    fixes_engine: bool = True
    not_claimed: Mapping[str, str] = field(default_factory=_not_claimed)
    notes: tuple[str, ...] = (
        "clipping, importance ratios and KL come before it and are not exercised",
    )
    parameters: tuple[str, ...] = _ARGUMENTS
    misuses: tuple[Misuse, ...] = SLIME

    def modes(self, offer: Offer) -> tuple[str, ...]:
        return (*(mode for modes in _RIGHT.values() for mode in modes), "prompt_mean")

    def recognises(self, offer: Offer) -> bool:
        # A fourth parameter of another name is slime's core function, whose fourth positional
        # argument means something else; miles' core has the hook's four, and others.
        core = {"denominators", "qkv_format", "max_seq_lens"} & set(offer.parameters)
        return offer.parameters[:4] == _ARGUMENTS and not core

    def default_engine(self, mode: str | None) -> str:
        return "megatron-token" if mode == "token_mean" else "megatron-sample"

    def why_not(self, mode: str | None, engine: str, claimed: Set[str]) -> str | None:
        engine = usual(engine)
        if engine not in _RIGHT:
            return f"slime and miles train on Megatron: engines {', '.join(_RIGHT)}"
        if mode is None or mode in _RIGHT[engine]:
            return None
        if mode == "prompt_mean" and engine == "megatron-sample":
            if claimed & {"whole-groups", "straddling-groups"}:
                return None
            return (
                f"{_NO_COUNTS}, so the token totals of prompt groups cannot be known in it; with "
                f"--group-size G it can be right where every group of G is whole in a micro-batch"
            )
        for other, modes in _RIGHT.items():
            if mode in modes:
                return f"{_NO_COUNTS}; {mode} works only with --engine {other}"
        return f"{_NO_COUNTS}, and both Megatron paths divide by one"

    def bind(self, function: Callable[..., Any], module: Any, site: Site) -> Bound:
        step = site.case.step

        def call(k: int, losses: Tensor) -> Output:
            members = site.case.layout.micro_batches[site.dp_rank][k]
            samples = [step.samples[i] for i in members]
            reducer = function(
                [s.total_length for s in samples],
                [s.response_length for s in samples],
                [mask_tensor(s.loss_mask, np.int32, site.device) for s in samples],
                site.per_token,
            )
            if not callable(reducer):
                raise TypeError(
                    f"the hook must return a callable, got {type(reducer).__name__} {reducer!r}"
                )
            return Output(reducer(losses))

        return call
