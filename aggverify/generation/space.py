"""Which steps and layouts a check wants to see generated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from aggverify.steps.layouts import CpKind


@dataclass(frozen=True, slots=True)
class Space:
    """What a check wants to see generated. Every field narrows; nothing is filtered afterwards."""

    max_dp: int = 1
    max_cp: int = 1
    max_microbatches: int = 1
    min_world: int = 1
    max_world: int = 8
    cp_kinds: tuple[CpKind, ...] = ("zigzag",)
    min_units: int = 1
    """Smallest product of the sizes above that is generated (2 leaves the trivial layout out)."""
    max_extra_samples: int = 4
    max_length: int = 12
    lengths: tuple[int, ...] = ()
    """Response lengths to choose from instead, all unmasked."""
    fan_out: bool = False
    empty_samples: bool = True
    uniform: bool = False
    """Micro-batches of one size, filled in index order (SkyRL's driver)."""
    group_size: int | None = None
    """Prompt groups of exactly this many rollouts, each whole in one micro-batch."""
    whole_groups: bool = False
    """Every prompt group, of any size, whole in one micro-batch."""
    split_groups: bool = False
    """The first prompt group in more than one micro-batch or rank."""
    dtypes: tuple[str, ...] = ("float64",)
    blank_a_unit: bool = False
    """Fully mask one sample, rollout, group, micro-batch, rank, or the whole step."""
    needs_hole: bool = False
    """At least one response token is masked."""
    rejects: bool = False
    """Some unmasked tokens are rejected after the fact: denominators have an original mask."""
    padded: bool = False
    """Masked tokens behind responses, rows of one width."""
    dummies: bool = False
    """With ``padded``: also a fully masked copy of each micro-batch's first sample."""
    shuffled: bool = False
    """Samples, ids, micro-batches and ranks in any order; whole prompt groups where rows are dealt
    in order or groups have one size."""


Size = tuple[int, int, int, CpKind]
"""Data parallel, context parallel, micro-batches, and how context parallelism slices."""


@lru_cache(maxsize=256)
def sizes(space: Space) -> tuple[Size, ...]:
    """All sizes of the space, smallest world first, so that shrinking goes there."""
    found: list[Size] = [
        (d, c, k, kind)
        for d in range(1, space.max_dp + 1)
        for c in range(1, space.max_cp + 1)
        for k in range(1, space.max_microbatches + 1)
        for kind in (space.cp_kinds if c > 1 else ("zigzag",))
        if space.min_world <= d * c <= space.max_world and d * c in (1, 2, 3, 4, 6, 8)
        if d * c * k >= space.min_units and (d * k > 1 or not space.split_groups)
    ]
    return tuple(sorted(found, key=lambda s: (s[0] * s[1] * s[2], s[:3], s[3] != "zigzag", s[3])))


@lru_cache(maxsize=256)
def fitting(space: Space, units: int) -> tuple[Size, ...]:
    """The sizes of the space that this many units can be dealt to."""
    return tuple(
        (d, c, k, kind)
        for d, c, k, kind in sizes(space)
        if d * k <= units and not (space.uniform and units % (d * k))
    )
