"""SkyRL since March 2026: reduction folded into the advantages on the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aggverify.conventions.base import Bound, Misuse, Output, Site
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.misuses import SKYRL
from aggverify.conventions.run_against import RunAgainst
from aggverify.conventions.skyrl_rows import SkyrlRows
from aggverify.engines import usual
from aggverify.oracles import LEGACY, family

if TYPE_CHECKING:
    from torch import Tensor

_NAMES = {
    "token_mean": "token_mean",
    "sample_mean": "sequence_mean",
    "constant": "seq_mean_token_sum_norm",
    "prompt_mean": "prompt_mean",
    LEGACY.name: "token_mean_legacy",
}
_SCALED = (
    *("advantages", "loss_mask", "loss_reduction"),
    *("micro_batch_size", "max_seq_len", "prompt_boundaries"),
)
_ENGINES = ("skyrl-fsdp", "skyrl-megatron", "sum")
_POISON = "SkyRL's reduce_loss multiplies by the mask and its trainer passes finite losses"
_NO_CP = "SkyRL gathers log-probs before its loss; the reduction never sees a CP shard"
_ROWS = "SkyRL's driver cuts every rank's rows into micro-batches of one fixed size"
_ONE_ROW = "a row is a sequence; SkyRL averages over rows"


def _not_claimed() -> dict[str, str]:
    return {
        "context-parallel": _NO_CP,
        "contiguous": _NO_CP,
        "gathered": _NO_CP,
        "ragged-micro-batches": _ROWS,
        "fan-out": _ONE_ROW,
        "dummy-samples": _ONE_ROW,
        "rejection": "the masks are taken as final",
        "poison": _POISON,
        "validates-arguments": "SkyRL's trainer checks its configuration, not its reducer",
    }


@dataclass(frozen=True, slots=True)
class SkyrlAdvantages:
    """Since March 2026: the driver scales the advantages of all rows, ranks take masked sums.

    The candidate's module must offer ``reduce_loss(loss, loss_mask)`` next to the function.
    """

    name: str = "skyrl"
    title: str = "SkyRL, reduction by advantages (0.2.0 and later)"
    usual_name: str = "apply_loss_reduction_to_advantages_minibatch"
    signature: str = (
        "def apply_loss_reduction_to_advantages_minibatch(advantages, loss_mask, loss_reduction, "
        "micro_batch_size, max_seq_len, prompt_boundaries=None) -> Tensor, "
        "with def reduce_loss(loss, loss_mask) in the same module"
    )
    returns: str = (
        "the advantages scaled, of the shape they were given in; its reduce_loss returns a "
        "floating-point tensor of one element that depends on the loss"
    )
    mode_is_argument: bool = True
    fixes_engine: bool = True
    not_claimed: Mapping[str, str] = field(default_factory=_not_claimed)
    notes: tuple[str, ...] = (
        "clipping, importance ratios and KL come before it and are not exercised",
    )
    parameters: tuple[str, ...] = _SCALED
    run_against: tuple[RunAgainst, ...] = (
        RunAgainst("skyrl", "0.4.0", "2026-11-26"),
        RunAgainst("skyrl", "0.3.0", "2026-11-26"),
    )
    misuses: tuple[Misuse, ...] = SKYRL

    def modes(self, offer: Offer) -> tuple[str, ...]:
        has_prompts = "prompt_boundaries" in offer.parameters
        return tuple(m for m in _NAMES if has_prompts or m != "prompt_mean")

    def recognises(self, offer: Offer) -> bool:
        return offer.parameters[:5] == _SCALED[:5]

    def default_engine(self, mode: str | None) -> str:
        return "skyrl-fsdp"

    def why_not(self, mode: str | None, engine: str, claimed: Set[str]) -> str | None:
        if usual(engine) not in _ENGINES:
            return f"SkyRL's worker averages as {' or '.join(_ENGINES)} does, not as {engine}"
        if mode is not None and family(mode) not in _NAMES:
            return f"SkyRL has no name for {mode} (it has {', '.join(_NAMES.values())})"
        return None

    def bind(self, function: Callable[..., Any], module: Any, site: Site) -> Bound:
        import torch

        reduce_loss = getattr(module, "reduce_loss", None)
        if reduce_loss is None:
            raise TypeError("the module offers no reduce_loss(loss, loss_mask)")
        rows = SkyrlRows(site.case.step, site.case.layout, site.device)
        mask = rows.masks(range(rows.count), torch.float32)
        counted = mask
        if site.counts_rejected:
            # The driver scales before the workers reject.
            counted = rows.masks(range(rows.count), torch.float32, original=True)
        ones = torch.ones(mask.shape, dtype=getattr(torch, site.case.dtype), device=site.device)
        arguments = [ones, counted, _reduction(site), rows.per_micro_batch, site.divisor]
        if site.mode == "prompt_mean":
            arguments.append(rows.boundaries())
        scaled = function(*arguments)

        def call(k: int, losses: Tensor) -> Output:
            members = site.case.layout.micro_batches[site.dp_rank][k]
            padded = rows.pad(losses, members)
            return Output(reduce_loss(padded * scaled[list(members)], mask[list(members)]))

        return call


def _reduction(site: Site) -> str:
    if site.mode is None:
        raise TypeError("SkyRL's functions take the mode: one must be given")
    return _NAMES[family(site.mode)]
