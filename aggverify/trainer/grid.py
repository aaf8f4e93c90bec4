"""A rank's place in the (dp, cp) grid of a layout, with the process groups it has there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aggverify.conventions.base import ExpertPlace
from aggverify.steps.experts import parallel_size
from aggverify.steps.layouts import Layout

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@dataclass(frozen=True, slots=True)
class GridCell:
    """One rank under one layout."""

    dp_rank: int
    cp_rank: int
    dp_group: ProcessGroup | None
    cp_group: ProcessGroup | None


class Grid:
    """The cells of one rank; sub-groups are created once per factorisation of the world.

    Every gloo group costs three threads that wake a hundred times a second, so the whole world
    and the rank alone are shared by all factorisations.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._groups: dict[tuple[tuple[int, ...], ...], Any] = {}
        self._cells: dict[tuple[int, int], GridCell] = {}

    def cell(self, layout: Layout) -> GridCell:
        """Return the rank's cell; a collective the first time that a factorisation is seen."""
        sizes = layout.dp_size, layout.cp_size
        if sizes not in self._cells:
            self._cells[sizes] = self._made(*sizes)
        return self._cells[sizes]

    def experts(self, layout: Layout) -> ExpertPlace:
        """Its place among the ranks that share experts; a collective as above."""
        world, size = layout.world_size, parallel_size(layout)
        sharing = [list(range(first, first + size)) for first in range(0, world, size)]
        copies = [list(ranks) for ranks in zip(*sharing, strict=True)]
        return ExpertPlace(self._rank % size, size, self._group(sharing), self._group(copies))

    def _made(self, dp_size: int, cp_size: int) -> GridCell:
        dp_rank, cp_rank = divmod(self._rank, cp_size)
        grid = [[d * cp_size + c for c in range(cp_size)] for d in range(dp_size)]
        dp_group = self._group([list(ranks) for ranks in zip(*grid, strict=True)])
        return GridCell(dp_rank, cp_rank, dp_group, self._group(grid))

    def _group(self, partition: list[list[int]]) -> Any:
        """Return the rank's group out of a partition of the world."""
        import torch.distributed as dist

        if len(partition) == 1:
            return dist.group.WORLD
        key = tuple(map(tuple, partition))
        if key not in self._groups:
            self._groups[key] = dist.new_subgroups_by_enumeration(partition)[0]
        return self._groups[key]
