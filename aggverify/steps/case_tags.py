"""Tags of a case, by which the coverage of a reducer's branches is recorded."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from aggverify.oracles import Step
from aggverify.steps.case import Case

ONE_RANK, SHARDED = "one rank", "several ranks"
TAGS = (
    ONE_RANK,
    SHARDED,
    "data parallel",
    "context parallel",
    "micro-batches",
    "hole",
    "fully masked",
    "fan-out",
    "bfloat16",
    "float16",
)
"""A set of tags is one number: the tag at index n is bit n."""
_BIT = {tag: 1 << n for n, tag in enumerate(TAGS)}


def tags(case: Case) -> int:
    """All tags of the case, as one number."""
    layout, found = case.layout, _of_step(case.step)
    found |= _BIT[SHARDED] if layout.world_size > 1 else _BIT[ONE_RANK]
    found |= _BIT["data parallel"] * (layout.dp_size > 1)
    found |= _BIT["context parallel"] * (layout.cp_size > 1)
    found |= _BIT["micro-batches"] * (layout.num_microbatches > 1)
    return found | _BIT.get(case.dtype, 0)


def encode(names: Iterable[str]) -> int:
    """Return these tags as one number; unknown names are ignored."""
    return sum(_BIT.get(name, 0) for name in set(names))


def decode(number: int) -> tuple[str, ...]:
    """Return the tags in such a number."""
    return tuple(tag for tag, bit in _BIT.items() if number & bit)


@lru_cache(maxsize=16)
def _of_step(step: Step) -> int:
    masks = [sample.loss_mask for sample in step.samples]
    found = _BIT["hole"] * any(0 in mask.strip(b"\0") for mask in masks)
    found |= _BIT["fully masked"] * (not all(map(any, masks)))
    return found | _BIT["fan-out"] * (len(masks) > step.num_rollouts)
