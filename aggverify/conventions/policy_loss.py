"""The level above a reducer, ``loss(log_probs, advantages, batch)``.

Ratios, what is done to them and the mean, in one function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aggverify.conventions.base import NONLINEAR, Bound, Misuse, Site
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.micro_batch import MicroBatch
from aggverify.conventions.misuses import POLICY_LOSS
from aggverify.conventions.native import RETURNS, output
from aggverify.conventions.step_batches import Totals, micro_batch
from aggverify.oracles import LEGACY, MODES, objective

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


OVERFLOWS = 1234567.0
"""The loss of a token whose ratio to the rollout policy overflows, where ratios are not all 1."""


Ratios = Literal["at 1", "apart", "of the losses"]


def ratios_of(mode: str | None) -> Ratios:
    """Return the ratios, to policies that are all the same, each its own, or by an objective.

    A known objective has those that have the losses for log-ratios.
    """
    if mode is None or mode == NONLINEAR:
        return "at 1" if mode is None else "apart"
    return "at 1" if objective(mode) is None else "of the losses"


def policy_inputs(losses: Any, mask: Any, ratios: str) -> Any:
    """Return log-probabilities and advantages which have these losses at ratio 1.

    Log-probabilities are the policy's now and before the update, the rollout engine's and the
    reference policy's.

    The gradient runs through the first of them alone, and is the weight there, with the advantage
    taken out. Behind the mask no ratio is 1: what stands there is exponentiated too, and logged.

    With ratios apart, those to rollout and reference are 1, near 1, beyond usual clamps and e^12
    away, each token's by its own loss: at 0 all of them are 1.
    """
    import torch

    if ratios == "of the losses":  # exact, as they are multiples of 1/256
        ones = torch.ones_like(losses)
        return losses - 1, -ones, -ones, -ones, ones
    fixed = losses.detach()
    known = torch.nan_to_num(fixed)
    old = -1 - known.abs() % 1
    behind = torch.where(mask, 0.0, fixed.clamp(-8, 8))  # else exp() of it is infinite
    if ratios == "apart":
        overflows = known == OVERFLOWS
        known = torch.where(overflows, 1.0, known)
        ratio = torch.where(mask, known / 8, behind) + (losses - fixed) / 8
        # Two numbers from 0 to 1, of the loss, choose how far the other two ratios are from 1.
        choice, ref_choice = (known * 2.7 + 0.3) % 1, (known * 1.9 + 0.7) % 1
        near, beyond = 0.04 * torch.sin(9 * known + 2), 0.9 * torch.sin(5 * known)
        far = torch.where(choice < 0.75, beyond, 12 * torch.sin(3 * known).sign())
        off = torch.where(choice < 0.5, near, far) * ((choice >= 0.25) & (known != 0))
        rollout = old - torch.where(overflows, 1000.0, off)
        near, far = 0.3 * torch.cos(3 * known), 3 * torch.sin(2 * known + 0.5)
        away = torch.where(ref_choice < 0.75, near, far) * (known != 0)
        ref = old - away * (ref_choice >= 0.25)
        return old + ratio, old, rollout, ref, torch.sin(4 * known + 1)
    scale = torch.where(mask & (fixed != 0), fixed, 1.0)
    moved = torch.where(mask & fixed.isinf(), 0.0, (losses - fixed) / scale)
    log_ratio = torch.where(mask, 0.0, known.clamp(-8, 8))  # finite: the policy's own are not
    return old + behind + moved, old, old - log_ratio, old + log_ratio / 2, -fixed


def score_terms(losses: Sequence[float]) -> tuple[float, ...]:
    """Return, per token, minus the advantage times the log-probability, for these losses.

    REINFORCE and CISPO report that: at ratio 1 its gradient is that of the ratio. What is
    multiplied is what ``policy_inputs`` makes of the losses.
    """
    return tuple(loss * (-1 - abs(loss) % 1) for loss in losses)


def _not_claimed() -> dict[str, str]:
    return {
        "rejection": "the masks are taken as final; its counts may come from them",
        "validates-arguments": "a trainer that calls it wrongly is not the loss's business",
    }


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """A function of log-probabilities that makes ratios and returns its share of the step scalar.

    It clips or masks ratios. The share is ``sum(w * loss)`` with the advantages for minus losses,
    where ratios are 1.

    At other ratios (all of ``--mode nonlinear``) only layouts are compared. Under an objective that
    is known, log-probabilities differ from all others by the losses.
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
        "weights are read where all ratios are 1; at other ratios, to the old, the rollout and the "
        "reference policy, only layouts are compared: no formula of clipping, TIS or KL is judged",
    )
    parameters: tuple[str, ...] = ARGUMENTS
    misuses: tuple[Misuse, ...] = POLICY_LOSS
    takes_elsewhere: ClassVar[bool] = True
    roundings: ClassVar[int] = 4
    """On one token's path: the ratio's, the product with the advantage, and its taking out."""
    has_ratios: ClassVar[bool] = True
    """Whether it is also run where ratios are not 1."""
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

    def bind(self, function: Callable[..., Any], module: Any, site: Site) -> Bound:
        totals = Totals(site)

        def call(k: int, losses: Tensor) -> Any:
            batch = micro_batch(site, k, totals)
            mask = batch.mask.bool()
            log_probs, old, rollout, ref, advantages = policy_inputs(
                losses, mask, ratios_of(site.mode)
            )
            given = PolicyBatch(
                **{f.name: getattr(batch, f.name) for f in fields(batch)},
                old_log_probs=old,
                rollout_log_probs=rollout,
                ref_log_probs=ref,
            )
            return output(function(log_probs, advantages, given))

        return call
