"""Which steps and layouts a check wants to see generated."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache

from aggverify.oracles import Step
from aggverify.steps.case import Case, has_whole_groups, ranks_sharing_groups, ranks_with_parts
from aggverify.steps.layouts import CpKind, Layout
from aggverify.steps.padding import stripped

WORLDS = (1, 2, 3, 4, 6, 8)
"""Numbers of ranks that cases are made for."""


@dataclass(frozen=True, slots=True)
class Space:
    """What a check wants to see generated. What is drawn for a space lies in it, unfiltered.

    ``case in space`` is for cases from elsewhere: stored, listed, of the stream, or made out of a
    drawn one. How many samples, how long, and of which dtype a case is, is left to what made it.
    """

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
    holes: bool = False
    """With ``lengths``: also responses with a hole; a case from elsewhere has any length."""
    ids: bool = False
    """Rollouts and prompt groups are called by numbers that are no row numbers."""
    fan_out: bool = False
    empty_samples: bool = True
    empty_steps: bool = True
    """Whether nothing at all may be unmasked."""
    uniform: bool = False
    """Micro-batches of one size, filled in index order (SkyRL's driver)."""
    rows: int | None = None
    """So many samples in every micro-batch, with ``uniform``."""
    group_size: int | None = None
    """Prompt groups of exactly this many rollouts, each whole in one micro-batch unless
    ``split_groups``."""
    whole_groups: bool = False
    """Every prompt group, of any size, whole in one micro-batch."""
    whole_shards: bool = False
    """Every prompt group, of any size, whole on one data-parallel rank."""
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

    @property
    def whole_units(self) -> bool:
        """Whether what is dealt to a rank are whole prompt groups of any size."""
        return self.whole_groups or self.whole_shards

    def __contains__(self, case: Case) -> bool:
        if self.padded and self.dummies:
            case = stripped(case)[0]
        return (
            _has_size(case.layout, self) and _has_content(case.step, self) and _is_dealt(case, self)
        )


def _has_size(layout: Layout, space: Space) -> bool:
    return (
        layout.dp_size <= space.max_dp
        and layout.cp_size <= space.max_cp
        and layout.num_microbatches <= space.max_microbatches
        and space.min_world <= layout.world_size <= space.max_world
        and layout.world_size * layout.num_microbatches >= space.min_units
        and (layout.cp_size == 1 or layout.cp_kind in space.cp_kinds)
    )


def _has_content(step: Step, space: Space) -> bool:
    samples = step.samples
    return (
        (space.fan_out or len(samples) == step.num_rollouts)
        and (
            not space.lengths
            or space.holes
            or {s.response_length for s in samples} <= set(space.lengths)
        )
        and (space.rejects or all(s.original_mask is None for s in samples))
        and (space.empty_samples or all(s.num_original for s in samples))
        and (space.empty_steps or step.num_unmasked > 0)
        and (not space.blank_a_unit or not all(s.num_unmasked for s in samples))
        and (not space.needs_hole or step.num_unmasked < step.num_response_tokens)
    )


def _is_dealt(case: Case, space: Space) -> bool:
    return (
        (not space.uniform or _is_uniform(case))
        and (not space.rows or {len(c) for _, _, c in case.layout.cells()} == {space.rows})
        and (not space.group_size or _has_groups(case, space))
        and (not space.whole_groups or not ranks_with_parts(case))
        and (not space.whole_shards or not ranks_sharing_groups(case))
        and (not space.split_groups or bool(ranks_with_parts(case)))
    )


def _has_groups(case: Case, space: Space) -> bool:
    size = space.group_size or 1
    if not space.split_groups:
        return has_whole_groups(case, size)
    sizes = {len(members) for members in case.step.groups.values()}
    return sizes == {size} and len(case.step.samples) == case.step.num_rollouts


def _is_uniform(case: Case) -> bool:
    cells = [cell for _, _, cell in case.layout.cells()]
    in_order = [i for cell in cells for i in cell] == list(range(len(case.step.samples)))
    return in_order and len({len(cell) for cell in cells}) == 1


def folded(space: Space, sizes: Collection[str]) -> Space:
    """Return the space with each of these sizes of a layout held at 1."""
    return replace(
        space,
        max_dp=1 if "dp_size" in sizes else space.max_dp,
        max_cp=1 if "cp_size" in sizes else space.max_cp,
        max_microbatches=1 if "num_microbatches" in sizes else space.max_microbatches,
    )


Size = tuple[int, int, int, CpKind]
"""Data parallel, context parallel, micro-batches, and how context parallelism slices."""


@lru_cache(maxsize=256)
def sizes(space: Space) -> tuple[Size, ...]:
    """All sizes of the space, smallest world first, so that shrinking goes there."""
    found: list[Size] = [
        (d, c, k, kind)
        for d in range(1, space.max_dp + 1)
        for c in range(1, space.max_cp + 1)
        if space.min_world <= d * c <= space.max_world and d * c in WORLDS
        for k in range(1, space.max_microbatches + 1)
        if k <= 5 or k & (k - 1) == 0
        for kind in (space.cp_kinds if c > 1 else ("zigzag",))
        if d * c * k >= space.min_units and (d * k > 1 or not space.split_groups)
    ]
    return tuple(sorted(found, key=lambda s: (s[0] * s[1] * s[2], s[:3], s[3] != "zigzag", s[3])))


@lru_cache(maxsize=256)
def fitting(space: Space, units: int) -> tuple[Size, ...]:
    """Return the sizes of the space that this many units can be dealt to."""
    return tuple(
        (d, c, k, kind)
        for d, c, k, kind in sizes(space)
        if (d * k == units if space.rows else d * k <= units)
        and not (space.uniform and units % (d * k))
    )
