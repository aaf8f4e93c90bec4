"""The native signature, ``reduce(losses, batch)``: exactly what a trainer has at that place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from aggverify.conventions.base import Bound, Misuse, Offer, Output, Site, mask_tensor
from aggverify.conventions.misuses import NATIVE
from aggverify.oracles import MODES
from aggverify.steps.layouts import positions, visible_pieces

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One micro-batch on one rank, and the step's global counts.

    ``losses`` (the reducer's first argument) is 1-D: the samples' local pieces concatenated in the
    order of these lists. Lists have one entry per sample of the micro-batch.
    """

    loss_masks: list[Tensor]
    """Full 0/1 masks over each response, int64, shape ``(response_length,)``."""
    original_masks: list[Tensor]
    """The masks before tokens were rejected after the fact (TIS, rejection sampling); usually the
    same as ``loss_masks``."""
    local_masks: list[Tensor]
    """The part of each mask this rank's losses stand for, int64; may be empty under CP."""
    response_lengths: list[int]
    total_lengths: list[int]
    """Prompt plus response, in tokens."""
    rollout_ids: list[int]
    group_ids: list[int]
    rollout_tokens: list[int]
    """Unmasked tokens of each sample's whole rollout, over the whole step. Whether rejected ones
    count, here and in the two below, is the declared policy's to say."""
    group_tokens: list[int]
    """Unmasked tokens of each sample's whole prompt group, over the whole step."""
    step_rollout_tokens: list[int]
    """Unmasked tokens of every rollout of the step, in order of first appearance."""
    num_rollouts: int
    """N: rollouts in the step."""
    num_groups: int
    """P: prompt groups in the step."""
    num_tokens: int
    """M: unmasked response tokens in the step."""
    num_microbatches: int
    divisor: float | None
    """The constant mode's L, when one was given."""
    dp_rank: int
    dp_size: int
    cp_rank: int
    cp_size: int
    gathered: bool
    """Whether the losses were gathered over context parallelism: every rank has all of them."""
    dp_group: ProcessGroup | None
    cp_group: ProcessGroup | None


def _not_claimed() -> dict[str, str]:
    return {
        "rejection": "the masks are taken as final; its counts may come from them",
        "validates-arguments": "a trainer that calls it wrongly is not the reducer's business",
    }


PLAIN_CALL = """\
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
    returns: str = (
        "loss, (loss, count), (loss, log) or (loss, count, log): loss is a floating-point tensor "
        "of one element that depends on the losses, count an integer, log a mapping of names to "
        "scalars or pairs [sum, count]"
    )
    mode_is_argument: bool = False
    fixes_engine: bool = False
    not_claimed: Mapping[str, str] = field(default_factory=_not_claimed)
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
        counts = _counts(site)

        def call(k: int, losses: Tensor) -> Output:
            own, terms = _inputs(site, losses)
            out = function(own, _micro_batch(site, k, counts), *terms)
            if not isinstance(out, tuple):
                return Output(out)
            if len(out) == 2 and isinstance(out[1], Mapping):
                return Output(out[0], log=out[1])
            if len(out) in (2, 3):
                return Output(*out)
            raise TypeError(
                f"the reducer must return loss, (loss, count), (loss, log) or (loss, count, log), "
                f"got a tuple of {len(out)}"
            )

        return call


def _inputs(site: Site, values: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Losses and auxiliary terms, of which one has the values and all others are 0."""
    import torch

    terms = [torch.zeros_like(values) for _ in range(site.terms)]
    if site.term is None or not terms:
        return values, terms
    terms[site.term % len(terms)] = values
    return torch.zeros_like(values), terms


class _Counts(NamedTuple):
    """The step's denominators: tokens of every rollout, of every prompt group, of the step."""

    rollouts: dict[int, int]
    groups: dict[int, int]
    tokens: int


def _counts(site: Site) -> _Counts:
    step = site.case.step
    counted = [site.counted(i) for i in range(len(step.samples))]

    def over(units: Mapping[int, Sequence[int]]) -> dict[int, int]:
        return {name: sum([counted[i] for i in members]) for name, members in units.items()}

    return _Counts(over(step.rollouts), over(step.groups), sum(counted))


def _micro_batch(site: Site, k: int, counts: _Counts) -> MicroBatch:
    """Build what the reducer receives for micro-batch ``k``; nothing in it is shared."""
    import torch

    step, layout = site.case.step, site.case.layout
    members = layout.micro_batches[site.dp_rank][k]
    samples = [step.samples[i] for i in members]
    lengths = [s.response_length for s in samples]
    masks = b"".join(s.loss_mask for s in samples)
    originals = b"".join(s.original_mask or s.loss_mask for s in samples)
    pieces = visible_pieces(step, members, layout, site.cp_rank)
    starts = list(accumulate(lengths, initial=0))[:-1]
    # Each of its own memory: what is done to one mask must not reach the others.
    whole, original = (mask_tensor(flat, np.int64, site.device) for flat in (masks, originals))
    seen = whole.index_select(0, torch.from_numpy(positions(starts, pieces)).to(site.device))
    return MicroBatch(
        loss_masks=list(whole.split_with_sizes(lengths)),
        original_masks=list(original.split_with_sizes(lengths)),
        local_masks=list(seen.split_with_sizes([sum([b - a for a, b in p]) for p in pieces])),
        response_lengths=lengths,
        total_lengths=[s.prompt_length + s.response_length for s in samples],
        rollout_ids=[s.rollout for s in samples],
        group_ids=[s.group for s in samples],
        rollout_tokens=[counts.rollouts[s.rollout] for s in samples],
        group_tokens=[counts.groups[s.group] for s in samples],
        step_rollout_tokens=list(counts.rollouts.values()),
        num_rollouts=step.num_rollouts,
        num_groups=step.num_groups,
        num_tokens=counts.tokens,
        num_microbatches=layout.num_microbatches,
        divisor=site.divisor,
        dp_rank=site.dp_rank,
        dp_size=layout.dp_size,
        cp_rank=site.cp_rank,
        cp_size=layout.cp_size,
        gathered=layout.cp_size > 1 and layout.cp_kind == "gathered",
        dp_group=site.dp_group,
        cp_group=site.cp_group,
    )
