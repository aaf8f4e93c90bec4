"""What a mask was made into, fitted to which tokens have a weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aggverify.diagnosis.observation import ObservedSign, WeightObservation
from aggverify.steps.layouts import owned_pieces

Bits = npt.NDArray[np.bool_]
Masks = list[Bits]
"""Of samples that lie one after the other: whole ones, or what one rank has of them."""


@dataclass(frozen=True, slots=True)
class Made:
    """One thing a mask is made into: a sign of the bug table, and what follows "the mask is".

    ``grows``: whether only a masked token that has a weight is evidence of it, since tokens may be
    left out for other reasons.
    """

    sign: str
    words: str
    of: Callable[[Masks], Masks]
    grows: bool = True


def made_of_the_mask(observations: Sequence[WeightObservation]) -> ObservedSign | None:
    """Return the first thing made of the mask that is the set of weighed tokens everywhere.

    None where nothing fits, or the mask itself is that set.
    """
    seen = [(o.observed != 0, o.mask, o) for o in observations]
    if not any((weighed != mask).any() for weighed, mask, _ in seen):
        return None
    whole = [(weighed, mask, [_whole(o)]) for weighed, mask, o in seen]
    pieces = [(weighed, mask, list(_pieces(o))) for weighed, mask, o in seen]
    for made in _MADE:
        for where, parts in (("", whole), (", in what each rank has of a micro-batch", pieces)):
            if _fits(made, parts):
                return ObservedSign(made.sign, f"the mask is {made.words}{where}")
    return None


Parts = tuple[Bits, Bits, list[list[npt.NDArray[np.int64]]]]
"""Which tokens have a weight, the mask, and the flat tokens of each sample, place by place."""


def _fits(made: Made, seen: Sequence[Parts]) -> bool:
    differs = False
    for weighed, mask, places in seen:
        foretold = np.zeros_like(mask)
        for samples in places:
            for tokens, bits in zip(samples, made.of([mask[t] for t in samples]), strict=True):
                foretold[tokens] = bits
        if (foretold != weighed).any():
            return False
        differs |= bool((foretold & ~mask if made.grows else foretold != mask).any())
    return differs


def _whole(o: WeightObservation) -> list[npt.NDArray[np.int64]]:
    step = o.case.step
    pairs = zip(step.offsets, step.samples, strict=True)
    return [np.arange(a, a + s.response_length) for a, s in pairs]


def _pieces(o: WeightObservation) -> Iterator[list[npt.NDArray[np.int64]]]:
    """Yield what each rank has of each micro-batch, sample by sample; whole samples if gathered."""
    step, layout = o.case.step, o.case.layout
    whole = _whole(o)
    for _, _, members in layout.cells():
        if layout.cp_size == 1 or layout.cp_kind == "gathered":
            yield [whole[i] for i in members]
            continue
        for c in range(layout.cp_size):
            owned = owned_pieces(step, members, layout, c)
            yield [
                step.offsets[i] + np.array([t for a, b in parts for t in range(a, b)], dtype=int)
                for i, parts in zip(members, owned, strict=True)
            ]


def _each(change: Callable[[Bits], Bits]) -> Callable[[Masks], Masks]:
    return lambda masks: [change(mask) for mask in masks]


def _joined(change: Callable[[Bits], Bits]) -> Callable[[Masks], Masks]:
    """Return the change applied to all masks as one row."""

    def of(masks: Masks) -> Masks:
        ends = np.cumsum([len(mask) for mask in masks])[:-1]
        return list(np.split(change(np.concatenate(masks)), ends))

    return of


def _shifted(by: int) -> Callable[[Bits], Bits]:
    """Token t has the bit of token t + ``by``, and none where there is no such token."""

    def of(mask: Bits) -> Bits:
        out = np.zeros_like(mask)
        if abs(by) < len(mask):
            out[max(-by, 0) : len(mask) - max(by, 0)] = mask[max(by, 0) : len(mask) + min(by, 0)]
        return out

    return of


def _all(mask: Bits) -> Bits:
    return np.ones_like(mask)


def _rolled(by: int) -> Callable[[Bits], Bits]:
    return lambda mask: np.asarray(np.roll(mask, -by), dtype=bool)


def _twice(mask: Bits) -> Bits:
    """Pack the kept tokens together, and apply the mask to them once more from its first bit."""
    out = np.zeros_like(mask)
    kept = np.flatnonzero(mask)
    out[kept] = mask[: len(kept)]
    return out


def _counted(mask: Bits) -> Bits:
    """As many tokens from the first on as it has."""
    return np.asarray(np.arange(len(mask)) < mask.sum())


def _last(mask: Bits) -> Bits:
    return np.asarray(_counted(mask)[::-1])


def _of_another(which: Callable[[int, int], int]) -> Callable[[Masks], Masks]:
    """Sample i has the mask of another one, as far as that goes."""

    def of(masks: Masks) -> Masks:
        out = [np.zeros_like(mask) for mask in masks]
        for i, mine in enumerate(out):
            other = masks[which(i, len(masks))][: len(mine)]
            mine[: len(other)] = other
        return out

    return of


def _of_the_other_side(by: int) -> Callable[[Masks], Masks]:
    """Rows are padded on one side, their masks on the other."""

    def of(masks: Masks) -> Masks:
        width = max(map(len, masks), default=0)
        return [_shifted(by * (width - len(mask)))(mask) for mask in masks]

    return of


_SHIFTS = ((1, "[1:]"), (-1, "[:-1]"))
_MADE: tuple[Made, ...] = (
    *(
        Made("mask-shifted", f"moved by one token (mask{words})", _each(_shifted(by)))
        for by, words in _SHIFTS
    ),
    Made("mask-not-applied", "not applied: every response token has a weight", _each(_all)),
    Made("mask-inverted", "inverted: masked tokens have a weight, no others", _each(np.invert)),
    *(
        Made("mask-shifted", f"rolled by one token, end to end ({words})", _each(_rolled(by)))
        for by, words in ((1, "roll by -1"), (-1, "roll by 1"))
    ),
    *(
        Made("mask-shifted", f"moved by one token over sample ends (mask{words})", _joined(of(by)))
        for of in (_shifted, _rolled)
        for by, words in _SHIFTS
    ),
    *(
        Made("mask-shifted", f"moved by two tokens (mask{words})", _each(_shifted(by)))
        for by, words in ((2, "[2:]"), (-2, "[:-2]"))
    ),
    *(
        Made("mask-other-side", f"padded {mask}, the losses {rows}", _of_the_other_side(by))
        for by, mask, rows in ((1, "right", "left"), (-1, "left", "right"))
    ),
    Made("mask-counted", "taken as a length: the first tokens, as many as it has", _each(_counted)),
    Made("mask-counted", "taken as a length: the last tokens, as many as it has", _each(_last)),
    Made("mask-twice", "applied twice: once more to the kept tokens", _each(_twice), grows=False),
    Made("mask-twice", "applied twice: once more to the kept tokens", _joined(_twice), grows=False),
    *(
        Made("mask-of-another", f"that of {words}", _of_another(which))
        for words, which in (
            ("the next sample", lambda i, n: (i + 1) % n),
            ("the sample before", lambda i, n: (i - 1) % n),
            ("the first sample, for all of them", lambda i, n: 0),
            ("the sample at the same place from the end", lambda i, n: n - 1 - i),
        )
    ),
)  # fmt: skip
