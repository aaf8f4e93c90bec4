"""The level above a reducer, ``loss(log_probs, advantages, batch)``: ratios, what is done to them
and the mean, in one function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from aggverify.conventions.asked_of_batch import asked_of_batch
from aggverify.conventions.base import NONLINEAR, Bound, Misuse, Site
from aggverify.conventions.micro_batch import MicroBatch
from aggverify.conventions.misuses import POLICY_LOSS
from aggverify.conventions.native import RETURNS, output
from aggverify.conventions.offer import Offer
from aggverify.conventions.plain_batch import batches
from aggverify.conventions.scripted import Calling, PlainSite
from aggverify.conventions.step_batches import Totals, micro_batch
from aggverify.oracles import LEGACY, MODES

if TYPE_CHECKING:
    from torch import Tensor

ARGUMENTS = ("log_probs", "advantages", "batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBatch(MicroBatch):
    """A micro-batch with what log-probabilities are compared with, 1-D as they are."""

    old_log_probs: Tensor
    """Of the policy before the update."""
    rollout_log_probs: Tensor
    """Of the engine that sampled the tokens."""
    ref_log_probs: Tensor
    """Of the reference policy."""


def policy_inputs(losses: Any, mask: Any, other_ratios: bool) -> Any:
    """Log-probabilities, those before, and advantages, which have these losses at ratio 1.

    The gradient runs through the log-probabilities alone, and is the weight there, with the
    advantage taken out. Behind the mask the ratio is no 1: what stands there is exponentiated too.
    """
    import torch

    fixed = losses.detach()
    known = torch.nan_to_num(fixed)
    old = -1 - known.abs() % 1
    behind = torch.where(mask, 0.0, fixed.clamp(-8, 8))  # else exp() of it is infinite
    if other_ratios:
        ratio = torch.where(mask, fixed / 8, behind) + (losses - fixed) / 8
        return old + ratio, old, torch.sin(4 * known + 1)
    scale = torch.where(mask & (fixed != 0), fixed, 1.0)
    moved = torch.where(mask & fixed.isinf(), 0.0, (losses - fixed) / scale)
    return old + behind + moved, old, -fixed


_PLAIN = """\
{batch}
log_probs, old, advantages = policy_inputs(losses, torch.cat(batch.local_masks).bool(), {other})
batch.old_log_probs, batch.rollout_log_probs, batch.ref_log_probs = old, old.clone(), old.clone()
out = reduce(log_probs, advantages, batch)"""


def _not_claimed() -> dict[str, str]:
    return {
        "rejection": "the masks are taken as final; its counts may come from them",
        "validates-arguments": "a trainer that calls it wrongly is not the loss's business",
    }


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """A function that makes ratios of log-probabilities, clips or masks them, and returns its share
    of the step scalar: ``sum(w * loss)`` with the advantages for minus losses, where ratios are 1.

    Under ``--mode nonlinear`` the ratios are others, and only layouts are compared.
    """

    name: str = "policy-loss"
    title: str = "a policy loss of log-probabilities and advantages"
    usual_name: str = "loss"
    signature: str = (
        "def loss(log_probs: Tensor, advantages: Tensor, batch: aggverify.PolicyBatch) -> Tensor, "
        "(Tensor, count), (Tensor, log) or (Tensor, count, log)"
    )
    returns: str = RETURNS
    mode_is_argument: bool = False
    fixes_engine: bool = False
    not_claimed: Mapping[str, str] = field(default_factory=_not_claimed)
    notes: tuple[str, ...] = (
        "clipping, TIS and KL not exercised: all ratios are 1 where tokens count, but under "
        "--mode nonlinear, where advantages are no losses and only layouts are compared",
    )
    parameters: tuple[str, ...] = ARGUMENTS
    misuses: tuple[Misuse, ...] = POLICY_LOSS
    takes_elsewhere: ClassVar[bool] = True
    roundings: ClassVar[int] = 4
    """On one token's path: the ratio's, the product with the advantage, and its taking out."""
    hides_zeros: ClassVar[bool] = True
    """Whether a token with a loss of 0, which has no advantage, shows no weight."""

    def modes(self, offer: Offer) -> tuple[str, ...]:
        return (*MODES, LEGACY.name)

    def recognises(self, offer: Offer) -> bool:
        return offer.parameters[: len(ARGUMENTS)] == ARGUMENTS and offer.takes(len(ARGUMENTS))

    def default_engine(self, mode: str | None) -> str:
        return "sum"

    def why_not(self, mode: str | None, engine: str, claimed: Set[str]) -> str | None:
        # The step's counts are all at hand, so every engine can be served.
        return None

    def plain(self, site: PlainSite) -> Calling:
        found = batches(site, asked=asked_of_batch(site.texts))
        linear = site.mode != NONLINEAR
        call = _PLAIN.format(batch=f"batch = {found.made}", other=not linear)
        own = f"from typing import Any\n\n\n{inspect.getsource(policy_inputs)}".rstrip()
        given = "(log_probs, advantages, batch)"
        return Calling(call, given, found.told, code=found.code, adapter=own, zeros=not linear)

    def bind(self, function: Callable[..., Any], module: Any, site: Site) -> Bound:
        totals = Totals(site)

        def call(k: int, losses: Tensor) -> Any:
            batch = micro_batch(site, k, totals)
            mask = batch.mask.bool()
            log_probs, old, advantages = policy_inputs(losses, mask, site.mode == NONLINEAR)
            given = PolicyBatch(
                **{f.name: getattr(batch, f.name) for f in fields(batch)},
                old_log_probs=old,
                rollout_log_probs=old.clone(),
                ref_log_probs=old.clone(),
            )
            return output(function(log_probs, advantages, given))

        return call
