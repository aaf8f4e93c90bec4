"""What is not finite although every loss is: where, in which direction, and next to what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aggverify.diagnosis.observation import WeightObservation
from aggverify.diagnosis.terms import Tokens
from aggverify.steps.case import Case
from aggverify.steps.layouts import visible_pieces

Cells = dict[tuple[int, int, int], bool]
"""By data-parallel rank, context-parallel rank and micro-batch."""


@dataclass(frozen=True, slots=True)
class NotFinite:
    """``forward``: local losses, not only gradients.

    ``empty``: what has no token wherever it is not finite and nowhere else, "" where that is
    nothing known. ``masked``: the gradients at masked tokens, at all of them and at no others.
    """

    forward: bool
    empty: str = ""
    masked: bool = False


def not_finite(observations: Sequence[WeightObservation]) -> NotFinite | None:
    """Return what all that is not finite has in common; None where everything is finite."""
    bad = [o for o in observations if _is_bad(o)]
    if not bad:
        return None
    forward = any(not np.isfinite(loss) for o in bad for rank in o.local_losses for loss in rank)
    if not forward and _at_masked_tokens(observations):
        return NotFinite(False, masked=True)
    for name, is_empty in _EMPTY:
        foretold = ((o, is_empty(o.case)) for o in observations)
        if forward and all(_fits_losses(o, cells) for o, cells in foretold):
            return NotFinite(True, name)
        if not forward and all(_fits_weights(o, cells) for o, cells in foretold):
            return NotFinite(False, name)
    return NotFinite(forward)


def in_words(seen: NotFinite) -> str | None:
    """Return what is known of where it is not finite, in a sentence."""
    if seen.masked:
        return "gradients are NaN exactly at the masked tokens, the loss is finite"
    if not seen.empty:
        return None
    how = "0 / 0: the" if seen.forward else "only in backward: the"
    return f"{how} count of {seen.empty} is divided by as 0"


def _is_bad(o: WeightObservation) -> bool:
    losses = all(np.isfinite(rank).all() for rank in o.local_losses)
    return not losses or not bool(np.isfinite(o.observed).all())


def _at_masked_tokens(observations: Sequence[WeightObservation]) -> bool:
    """Every masked token and no other; a step of masked tokens alone is no evidence."""
    partly_masked = [o for o in observations if o.mask.any() and not o.mask.all()]
    return bool(partly_masked) and all(
        (np.isfinite(o.observed) == o.mask).all() for o in partly_masked
    )


def _fits_losses(o: WeightObservation, empty: Cells) -> bool:
    """Whether exactly these cells' losses are not finite."""
    bad = {
        (*divmod(rank, o.case.layout.cp_size), k): not np.isfinite(loss)
        for rank, losses in enumerate(o.local_losses)
        for k, loss in enumerate(losses)
    }
    return bad == empty


def _fits_weights(o: WeightObservation, empty: Cells) -> bool:
    return any(empty.values()) == (not np.isfinite(o.observed).all())


def _by_unit(*keys: str) -> Callable[[Case], Cells]:
    """Return what finds the cells that hold a part of a unit without an unmasked token."""

    def is_empty(case: Case) -> Cells:
        tokens = Tokens([case])
        unit = tokens.unit(*keys)
        empty = (np.bincount(unit, weights=tokens.mask) == 0)[unit]
        of_sample = np.zeros(len(case.step.samples), dtype=bool)
        np.logical_or.at(of_sample, tokens.sample, empty)
        return {
            (d, c, k): bool(of_sample[list(members)].any())
            for d, k, members in case.layout.cells()
            for c in range(case.layout.cp_size)
        }

    return is_empty


def _by_cell(part: Callable[[Sequence[npt.NDArray[np.int64]]], bool]) -> Callable[[Case], Cells]:
    """Return what judges each cell by what a rank sees of a micro-batch: one mask per sample."""

    def is_empty(case: Case) -> Cells:
        return {cell: part(masks) for cell, masks in _visible(case)}

    return is_empty


def _visible(case: Case) -> Iterator[tuple[tuple[int, int, int], list[npt.NDArray[np.int64]]]]:
    step, layout = case.step, case.layout
    for d, k, members in layout.cells():
        for c in range(layout.cp_size):
            pieces = visible_pieces(step, members, layout, c)
            yield (
                (d, c, k),
                [
                    np.array([x for a, b in own for x in step.samples[i].loss_mask[a:b]], np.int64)
                    for i, own in zip(members, pieces, strict=True)
                ],
            )


_EMPTY: tuple[tuple[str, Callable[[Case], Cells]], ...] = (
    ("a step without an unmasked token", _by_unit()),
    ("a sample without an unmasked token", _by_unit("sample")),
    ("a rollout without an unmasked token", _by_unit("rollout")),
    ("a prompt group without an unmasked token", _by_unit("prompt group")),
    ("a data-parallel rank without an unmasked token", _by_unit("dp rank")),
    ("a micro-batch without an unmasked token", _by_unit("dp rank", "micro-batch")),
    (
        "a rank's part of a micro-batch without a response token",
        _by_cell(lambda masks: not sum(map(len, masks))),
    ),
    (
        "a rank's part of a micro-batch without an unmasked token",
        _by_cell(lambda masks: not any(mask.any() for mask in masks)),
    ),
    (
        "a rank's part of a sample without a response token",
        _by_cell(lambda masks: any(not len(mask) for mask in masks)),
    ),
    (
        "a rank's part of a sample without an unmasked token",
        _by_cell(lambda masks: any(not mask.any() for mask in masks)),
    ),
)
"""What a count may be taken of; several are the same on one rank, and the plainest is reported."""
