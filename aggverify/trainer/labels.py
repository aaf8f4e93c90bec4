"""Logits whose cross entropy with right labels is the case's losses; which labels are used.

One entry, that of no token, is so far above all others that the loss of the right label is the
distance to it, and its derivative exactly -1. A label that gets a gradient is one that was used.
A loss that is no number is infinite here: logits that are NaN reach every gradient, by any loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from aggverify.conventions import Site
from aggverify.conventions.base import placed
from aggverify.conventions.token_labels import FAR, USUALLY_FAR
from aggverify.steps.layouts import Index
from aggverify.steps.sequences import (
    NOTHING,
    SequenceRows,
    before,
    next_ids,
    rows,
    token_ids,
    vocabulary,
)
from aggverify.world.candidate_errors import Breach

if TYPE_CHECKING:
    from torch import Tensor

_MUCH = 2.0**-10
"""A label counts as used from this share on of the gradient at the entry of no token."""


class WrongLabel(Breach):
    """A position was trained on another label than its next token."""

    name = "wrong label"

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.name = f"{WrongLabel.name}: {kind}"


def logits(
    site: Site, k: int, losses: tuple[Tensor, Tensor], wrong: Callable[[WrongLabel], None]
) -> Tensor:
    """Of the rank's positions of micro-batch ``k``, ``(n, ids)``.

    ``losses``: of every response token of the step, in two parts that are added: its value, and
    what carries the gradient. ``wrong`` is called for a label that is not the next token: in
    backward, where other ranks may wait, so that nothing may be raised.
    """
    import torch

    case, members = site.case, site.case.layout.micro_batches[site.dp_rank][k]
    known = rows(case.step, members, case.layout, site.cp_rank)
    predicts = np.flatnonzero(known.token != NOTHING)
    label, row, token = (
        placed(torch.from_numpy(part), site.device)
        for part in (next_ids(case.step, known)[predicts], predicts, known.token[predicts])
    )
    shape = (len(known.token), vocabulary(case.step))
    fixed, moved = (values[token] for values in losses)
    found = torch.zeros(shape, dtype=fixed.dtype, device=site.device)
    found[:, 0] = FAR.get(case.dtype, USUALLY_FAR)
    # A negative loss puts its label's logit above 0: entry 0 is raised by twice as much.
    found[row, 0] += torch.where(fixed.isfinite(), -2 * fixed, 0.0).clamp(min=0)
    fixed = torch.where(fixed.isfinite(), fixed, torch.inf)
    found = found.index_put((row, label), -fixed - moved).to(getattr(torch, case.dtype))
    if found.requires_grad:
        judge = partial(_judge, site, k, known, wrong)
        found.register_hook(judge)  # type: ignore[no-untyped-call]
    return found


def _judge(
    site: Site, k: int, known: SequenceRows, wrong: Callable[[WrongLabel], None], gradient: Tensor
) -> None:
    """Report the first position whose label, that with the most gradient, is not the right one.

    With smoothing all others have a little.
    """
    sizes = gradient.detach().abs().double()
    most, label_of = sizes[:, 1:].max(1)
    used = ((most > sizes[:, 0] * _MUCH) & most.isfinite()).cpu().numpy()
    labels = 1 + label_of.cpu().numpy()
    right = np.where(known.token != NOTHING, next_ids(site.case.step, known), 0)
    wrong_rows = np.flatnonzero(used & (labels != right))
    if len(wrong_rows):
        row, label = int(wrong_rows[0]), int(labels[wrong_rows[0]])
        sample, position = int(known.sample[row]), int(known.position[row])
        own = known.position[known.sample == sample].tolist()
        kind, words = _meant(site, k, sample, position, label, position + 1 in own)
        at = f"micro-batch {k}: position {position} of sample {sample}"
        wrong(WrongLabel(kind, f"{at} is trained on {words}"))


def _meant(
    site: Site, k: int, sample: int, position: int, label: int, has_next: bool
) -> tuple[str, str]:
    """Which token that is: the kind of mistake, and in words.

    ``has_next``: whether the rank has the next position, too.
    """
    step = site.case.step
    prompt = before(step.samples[sample])
    own = sorted(_places(token_ids(step)[sample], label), key=lambda p: abs(p - position - 1))
    if own and own[0] == position + 1:
        where = f"the prompt has {prompt} tokens"
        return "prompt", f"its next token, which is part of the prompt ({where})"
    here = next(iter(own), None)
    if here == position + 2 and has_next:
        return "shifted twice", f"the token at {here}, the one after its next: shifted twice"
    if here == position:
        return "not shifted", f"its own token, at {here}: not shifted"
    if here == 0 and position == len(token_ids(step)[sample]) - 1:
        return "rolled", "the first token of its sequence, which ends here: rolled end to end"
    for other in site.case.layout.micro_batches[site.dp_rank][k]:
        places = [*_places(token_ids(step)[other], label)]
        if other != sample and places:
            words = f"the token at {places[0]} of sample {other}: shifted over an edge"
            return "over an edge", words
    if here is not None and not has_next:
        return "over an edge", f"the token at {here}: shifted over the edge of a shard"
    if here is not None:
        return "elsewhere", f"the token at {here}, where its next is at {position + 1}"
    return "elsewhere", f"token id {label}, which this micro-batch does not have"


def _places(ids: Index, label: int) -> Iterator[int]:
    yield from np.flatnonzero(ids == label).tolist()
