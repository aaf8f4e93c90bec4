"""The native signature, ``reduce(losses, batch)``: exactly what a trainer has at that place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from aggverify.conventions.base import Bound, Misuse, Offer, Output, Site
from aggverify.conventions.micro_batch import Totals, micro_batch
from aggverify.conventions.misuses import NATIVE
from aggverify.oracles import MODES

if TYPE_CHECKING:
    from torch import Tensor


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
PLAIN_CALL = """\
        def padded(x, side="right", width="micro-batch", sizes=[len(own) for own in mine]):
            rows = x.split(sizes) if torch.is_tensor(x) else x
            longest = max(LENGTHS if width == "step" else map(len, rows))
            by = [(0, longest - len(row))[:: 1 if side == "right" else -1] for row in rows]
            return torch.stack([torch.nn.functional.pad(*each) for each in zip(rows, by)])

        batch = SimpleNamespace(
            loss_masks=masks,
            original_masks=[mask.clone() for mask in masks],
            local_masks=[mask[own] for mask, own in zip(masks, mine)],
            response_lengths=[len(s[1]) for s in group],
            total_lengths=[s[0] + len(s[1]) for s in group],
            rollout_ids=[s[2] for s in group],
            group_ids=[s[3] for s in group],
            rollout_tokens=[count(2, s[2]) for s in group],
            group_tokens=[count(3, s[3]) for s in group],
            step_rollout_tokens=[count(2, r) for r in dict.fromkeys(s[2] for s in SAMPLES)],
            num_rollouts=len({s[2] for s in SAMPLES}),
            num_groups=len({s[3] for s in SAMPLES}),
            num_tokens=count(None, None),
            num_microbatches=K,
            divisor=DIVISOR,
            dp_rank=d,
            dp_size=DP,
            cp_rank=c,
            cp_size=CP,
            gathered=False,
            dp_group=dp_group,
            cp_group=cp_group,
            dp_cp_group=dist.group.WORLD,
            mode=None,
            per_token=False,
            index=CELLS[d].index(cell),
            cp_kind=CP_KIND,
            num_samples=len(SAMPLES),
            num_valid_samples=sum(any(s[1]) for s in SAMPLES),
            rank_samples=sum(map(len, CELLS[d])),
            rank_tokens=sum(sum(SAMPLES[i][1]) for cell in CELLS[d] for i in cell),
            step_width=max(LENGTHS),
            group_rollouts=[len({r[2] for r in SAMPLES if r[3] == s[3]}) for s in group],
            mask=torch.cat([mask[own] for mask, own in zip(masks, mine)]),
            window_masks=[[torch.tensor(SAMPLES[i][1]) for i in k] for k in CELLS[d]],
            step_masks=[torch.tensor(s[1]) for s in SAMPLES],
            local_positions=[torch.tensor(own) for own in mine],
            padded=padded,
            rows=lambda x, **how: (padded(x, **how), padded(batch.local_masks, **how)),
        )
        loss = getattr(module, NAME)(x[flat], batch)"""


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
    plain_setup: ClassVar[str] = ""
    plain_call: ClassVar[str] = PLAIN_CALL
    """How a script of plain torch calls it (``report.plain_torch``)."""

    def modes(self, offer: Offer) -> tuple[str, ...]:
        return tuple(MODES)

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
            own, terms = _inputs(site, losses)
            return output(function(own, micro_batch(site, k, totals), *terms))

        return call


def output(out: Any) -> Output:
    """What a reducer has returned, in one of the four forms there are."""
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


def _inputs(site: Site, values: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Losses and auxiliary terms, of which one has the values and all others are 0."""
    import torch

    terms = [torch.zeros_like(values) for _ in range(site.terms)]
    if site.term is None or not terms:
        return values, terms
    terms[site.term % len(terms)] = values
    return torch.zeros_like(values), terms
