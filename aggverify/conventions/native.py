"""The native signature, ``reduce(losses, batch)``: exactly what a trainer has at that place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from aggverify.conventions.base import Bound, Misuse, Output, Site
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.misuses import NATIVE
from aggverify.conventions.step_batches import Totals, micro_batch
from aggverify.oracles import LEGACY, MODES

if TYPE_CHECKING:
    from torch import Tensor

    from aggverify.conventions.micro_batch import MicroBatch


def _not_claimed() -> dict[str, str]:
    return {
        "rejection": "the masks are taken as final; its counts may come from them",
        "validates-arguments": "a trainer that calls it wrongly is not the reducer's business",
    }


RETURNS = (
    "loss, (loss, count), (loss, log) or (loss, count, log): loss is a floating-point tensor of "
    "one element that depends on the losses, count an integer, log a mapping of names to scalars "
    "or pairs [sum, count]"
)


@dataclass(frozen=True, slots=True)
class Native:
    """A function ``reduce(losses, batch)`` that returns its share of the step scalar.

    Further parameters without a default are additive auxiliary terms (KL, entropy, a value loss):
    each gets a per-token tensor like the losses.

    It may return ``(loss, count)``, ``(loss, log)`` or ``(loss, count, log)``. The log maps names
    to what Megatron-LM's report does: a scalar, which is reduced as the loss is, or a pair ``[sum,
    count]``, both added over micro-batches and ranks, then divided. Its ``loss``, if there is one,
    must be the step scalar.
    """

    name: str = "native"
    title: str = "aggverify's own signature"
    usual_name: str = "reduce"
    signature: str = (
        "def reduce(losses: Tensor, batch: aggverify.MicroBatch) -> Tensor, (Tensor, count), "
        "(Tensor, log) or (Tensor, count, log)"
    )
    returns: str = RETURNS
    mode_is_argument: bool = False
    fixes_engine: bool = False
    not_claimed: Mapping[str, str] = field(default_factory=_not_claimed)
    notes: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ("losses", "batch")
    misuses: tuple[Misuse, ...] = NATIVE
    takes_elsewhere: ClassVar[bool] = True
    """Whether all of a step's counts are given, so that they can be larger than what is run."""

    def modes(self, offer: Offer) -> tuple[str, ...]:
        return (*MODES, LEGACY.name)

    def recognises(self, offer: Offer) -> bool:
        return offer.parameters[:2] == ("losses", "batch")

    def default_engine(self, mode: str | None) -> str:
        return "sum"

    def why_not(self, mode: str | None, engine: str, claimed: Set[str]) -> str | None:
        # The step's counts are all at hand, so every engine can be served.
        return None

    def bind(self, function: Callable[..., Any], module: Any, site: Site) -> Bound:
        totals = Totals(site)

        def call(k: int, losses: Tensor) -> Output:
            batch = micro_batch(site, k, totals)
            own, terms = inputs(site, losses, batch)
            return output(function(own, batch, *terms))

        return call


def output(out: Any) -> Output:
    """Return what a reducer has returned, in one of the four forms there are."""
    if not isinstance(out, tuple):
        return Output(out)
    if len(out) == 2 and isinstance(out[1], Mapping):
        return Output(out[0], log=out[1])
    if len(out) in (2, 3):
        return Output(*out)
    raise TypeError(
        f"the reducer must return loss, (loss, count), (loss, log) or (loss, count, log), got a "
        f"tuple of {len(out)}"
    )


def inputs(site: Site, values: Tensor, batch: MicroBatch) -> tuple[Tensor, list[Tensor]]:
    """Losses and auxiliary terms, of which one has the values and all others are 0.

    All come of one model. A loss may leave out whatever is masked, so where nothing is unmasked all
    of them are in the graph of the values. Elsewhere they are not: a term that the loss never uses
    is found by its missing gradient.
    """
    import torch

    if not site.terms:
        return values, []
    zeros = [torch.zeros_like(values) for _ in range(site.terms + 1)]
    if not any(bool(mask.any()) for mask in batch.local_masks):
        zeros = [torch.where(zero.bool(), values, zero) for zero in zeros]  # 0, in their graph
    losses, *terms = zeros
    if site.term is None:
        return values, terms
    terms[site.term % len(terms)] = values
    return losses, terms
