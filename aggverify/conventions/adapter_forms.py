"""How an adapter hands losses, masks and all else over, as it is written in it.

And what is known of a function that its parameters' names do not show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from aggverify.conventions.parameters import Role

TAKEN = ("torch", "losses", "batch", "loss", "lengths", "rows", "mask", "reduce")
"""Names that the adapter uses itself."""
DIVISOR = 16.0
"""Of a mode with a fixed divisor, until the person gives theirs."""
_PADDED = "torch.nn.utils.rnn.pad_sequence({}, batch_first=True)"
_LENGTHS = "lengths = [len(mask) for mask in batch.local_masks]"
_ROWS = (_LENGTHS, f"rows = {_PADDED.format('losses.split(lengths)')}")


@dataclass(frozen=True, slots=True)
class CallForm:
    """How losses and masks are handed over: what is written before the call, and in it."""

    before: tuple[str, ...]
    losses: str
    masks: str
    each: str = "{}"
    """What is done to the losses, where they are several tensors."""


class CallForms(Enum):
    """The forms there are."""

    ROWS = CallForm(
        (*_ROWS, f"mask = {_PADDED.format('batch.local_masks')}.bool()"), "rows", "mask"
    )
    NUMBERS = CallForm(
        (*_ROWS, f"mask = {_PADDED.format('batch.local_masks')}.to(losses.dtype)"), "rows", "mask"
    )
    FLAT = CallForm(("mask = torch.cat(batch.local_masks).bool()",), "losses", "mask")
    LISTS = CallForm(
        (_LENGTHS, "rows = losses.split(lengths)"),
        "rows",
        "batch.local_masks",
        "[{} for row in rows]",
    )
    PIECES = CallForm((), "losses", "batch.loss_masks")
    """All losses one after the other, and each sample's full mask."""


EXPRESSIONS: Mapping[Role, str] = {
    Role.BATCH: "batch",
    Role.PLACE: "batch",
    Role.TOKENS: "batch.num_tokens",
    Role.SAMPLES: "batch.num_rollouts",
    Role.GROUPS: "batch.num_groups",
    Role.DIVISOR: "batch.divisor",
    Role.WORLD: "batch.dp_size * batch.cp_size",
    Role.MICRO_BATCHES: "batch.num_microbatches",
    Role.LENGTHS: "batch.response_lengths",
    Role.ENDS: "batch.cu_seqlens",
    Role.TOTALS: "batch.total_lengths",
    Role.ROLLOUT_TOKENS: "list(torch.tensor(batch.rollout_tokens, device=losses.device))",
    Role.AXIS: "None",
    Role.CP_RANK: "batch.cp_rank",
    Role.CP_SIZE: "batch.cp_size",
    Role.CP_GROUP: "batch.cp_group",
    Role.DP_GROUP: "batch.dp_group",
    Role.DP_RANK: "batch.dp_rank",
    Role.CLIP: "0.2",
    Role.COEFFICIENT: "0.0",
}


_TENSORS: Mapping[str, Role] = {
    "{losses}": Role.LOSSES,
    "-{losses}": Role.ADVANTAGES,
    "{zeros}": Role.LOG_PROBS,
    "{masks}": Role.MASK,
}
"""Expressions for tensors of whatever form the call has."""


@dataclass(frozen=True, slots=True)
class CallHints:
    """What is known of a function that the names of its parameters do not show."""

    arguments: Mapping[str, str] = field(default_factory=dict)
    """Expressions by parameter."""
    found: frozenset[str] = frozenset()
    """Those of them that a call has shown, rather than a person declared."""
    mode: str | None = None
    engine: str | None = None
    divisor: float | None = None
    shape: CallForms | None = None
    first: bool | None = None
    """Whether it returns several things, the loss first; None where no call has shown that."""
    trouble: str = ""
    """What went wrong in every call of it, in one line."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """What a count may be as well, by parameter, where that gives another verdict."""
    left: tuple[str, ...] = ()
    """Claims that only the person can make: ``mode``, ``engine``."""


def tensor(form: CallForm, what: Role) -> str:
    """Losses, masks, and what stands in for them."""
    if what is Role.MASK:
        return form.masks
    several = form.each != "{}"
    one = "row" if several else form.losses
    if what is Role.ADVANTAGES:
        return form.each.format(f"-{one}")
    if what is Role.LOG_PROBS:
        return form.each.format(f"torch.zeros_like({one})")
    return form.losses


def in_form(form: CallForm, expression: str) -> str:
    """Return an expression of ``CallHints`` as it is written in a call of that form."""
    what = _TENSORS.get(expression)
    return expression if what is None else tensor(form, what)
