"""One stream of drawn cases, which every property judges: each brings them into its own space.

A step is drawn once, and what its ranks do on a layout is judged by every property that the case
is in the space of. So a property that is cheap to ask is asked of what has been run anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from typing import Protocol

from aggverify.generation.space import Space
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout

LAYOUTS = 4
"""Of each step that is drawn for one space alone."""
PATIENCE = 4
"""Of the stream, cases looked at for each that is wanted; then some are drawn for the space."""


class Draw(Protocol):
    """Draws different cases of a space, the same ones each time."""

    def __call__(self, space: Space, layouts: int = ...) -> Iterator[Case]:
        """Yield cases of up to so many layouts of each step."""


@dataclass(slots=True)
class CaseStream:
    """Cases of the widest spaces of a subject, drawn as they are asked for and kept."""

    spaces: tuple[Space, ...]
    """In turn one case of each."""
    draw: Draw
    _drawn: list[Case] = field(default_factory=list)
    _rest: Iterator[Case] | None = None

    def __iter__(self) -> Iterator[Case]:
        if self._rest is None:
            each = [self.draw(space, layouts=1) for space in self.spaces]
            self._rest = chain.from_iterable(zip(*each, strict=False))
        for n in count():
            if n == len(self._drawn):
                self._drawn.extend(islice(self._rest, 1))
            if n == len(self._drawn):
                return  # there are no more
            yield self._drawn[n]

    def cases(self, space: Space, most: int) -> Iterator[Case]:
        """Yield different cases of a space: of the stream, then such as only that space has."""
        found: dict[Case, None] = {}
        for case in chain(self._brought(space, most), self._own(space)):
            if case not in found:
                found[case] = None
                yield case

    def _brought(self, space: Space, most: int) -> Iterable[Case]:
        if _is_special(space):
            return ()
        brought = (bring(case, space) for case in islice(self, PATIENCE * most))
        return (case for case in brought if case is not None)

    def _own(self, space: Space) -> Iterator[Case]:
        yield from self.draw(space, layouts=LAYOUTS)  # nothing is drawn before it is asked for


def _is_special(space: Space) -> bool:
    """Whether the space asks for what no wide one has."""
    usual = Space()
    return any(
        getattr(space, name) != getattr(usual, name)
        for name in ("lengths", "holes", "ids", "split_groups", "rejects", "padded", "shuffled")
    )


def bring(case: Case, space: Space) -> Case | None:
    """Return the case with its layout folded into the sizes of a space, None if it is not in it."""
    layout = case.layout
    dp = min(layout.dp_size, space.max_dp)
    cp = min(layout.cp_size, space.max_cp, max(space.max_world // dp, 1))
    k = min(layout.num_microbatches, space.max_microbatches)
    kind: CpKind = layout.cp_kind if cp > 1 else "zigzag"
    dtype = case.dtype if case.dtype in space.dtypes else space.dtypes[0]
    folded = replace(case.with_layout(_folded(layout, dp, k, cp, kind)), dtype=dtype)
    return folded if folded in space else None


def _folded(layout: Layout, dp: int, k: int, cp: int, kind: CpKind) -> Layout:
    """Merge neighbouring ranks and micro-batches; samples of a merged one ascend."""
    cells: list[list[list[int]]] = [[[] for _ in range(k)] for _ in range(dp)]
    for d, each, samples in layout.cells():
        row = cells[d * dp // layout.dp_size]
        row[each * k // layout.num_microbatches].extend(samples)
    merged = tuple(tuple(tuple(sorted(cell)) for cell in row) for row in cells)
    if (dp, k) == (layout.dp_size, layout.num_microbatches):
        merged = layout.micro_batches
    return Layout(merged, cp, kind)
