"""One stream of drawn cases: each property that can takes them, brought into its own space.

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
"""Cases of the stream tried for each one that is wanted, before any is drawn for the space."""
_LACKING = ("lengths", "holes", "ids", "split_groups", "rejects", "padded", "shuffled")
"""Fields of a space of which a wide one has nothing."""


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
                try:
                    self._drawn.extend(islice(self._rest, 1))
                except BaseException:  # a generator that raised is over: the next one begins anew
                    self._drawn, self._rest = [], None
                    raise
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
        if not self._reaches(space):
            return ()
        brought = (bring(case, space) for case in islice(self, PATIENCE * most))
        return (case for case in brought if case is not None)

    def _reaches(self, space: Space) -> bool:
        """Whether nothing that the space asks for lies outside of the stream's own.

        One sample more is near enough, and one of the usual precisions is as good as the other.
        """
        wide, usual = self.spaces[0], Space()
        return (
            all(getattr(space, name) == getattr(usual, name) for name in _LACKING)
            and space.max_length <= wide.max_length
            and space.max_microbatches <= wide.max_microbatches
            and space.max_extra_samples <= wide.max_extra_samples + 1
            and {*space.dtypes} <= {*wide.dtypes, "float64", "float32"}
        )

    def _own(self, space: Space) -> Iterator[Case]:
        yield from self.draw(space, layouts=LAYOUTS)  # nothing is drawn before it is asked for


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
