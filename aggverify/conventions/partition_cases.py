"""Prompt groups to deal to data-parallel ranks, and what a dealer promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aggverify.conventions.stand_ins import StandIn, StandInDict

GROUP = 2
"""Samples of every complete prompt group."""
_LENGTHS = (3, 9, 4, 4, 11, 4, 7, 5)


@dataclass(frozen=True, slots=True)
class PartitionCase:
    """One rollout: of each sample its prompt group, and over how many ranks they go."""

    description: str
    groups: tuple[int, ...]
    ranks: int
    step: int = 0
    """Samples of one optimizer step; 0 for all of them."""
    balanced: bool = False
    """Whether ranks are to have about as many tokens each."""
    budget: int = 0
    """Tokens that a micro-batch may have; 0 for micro-batches of two samples."""
    wrong: str = ""
    """Why no deal can be right."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each sample."""
        return tuple(_LENGTHS[n % len(_LENGTHS)] for n in range(len(self.groups)))

    @property
    def per_step(self) -> int:
        return self.step or len(self.groups)

    def args(self, promises: Promises) -> StandIn:
        """Under the names of slime and miles."""
        return StandIn(
            **{
                "loss_aggregation": "prompt_mean" if promises.whole_groups else "sample_mean",
                "n_samples_per_prompt": GROUP,
                "global_batch_size": self.per_step,
                "rollout_batch_size": len(set(self.groups)),
                "balance_data": self.balanced,
                "use_dynamic_global_batch_size": False,
                "use_dynamic_batch_size": bool(self.budget),
                "max_tokens_per_gpu": self.budget or None,
                "micro_batch_size": GROUP,
                **promises.others,
            }
        )

    def data(self) -> StandInDict:
        """Return samples as lists, one entry each."""
        each = range(len(self.groups))
        masks = [[1] * (n - 1) for n in self.lengths]
        tokens = dict.fromkeys(self.groups, 0)
        for group, mask in zip(self.groups, masks, strict=True):
            tokens[group] += sum(mask)
        return StandInDict(
            tokens=[[*range(n)] for n in self.lengths],
            total_lengths=[*self.lengths],
            response_lengths=[*map(len, masks)],
            loss_masks=masks,
            prompt_group_indices=[*self.groups],
            prompt_mask_sums=[tokens[group] for group in self.groups],
            rollout_ids=[*each],
            rollout_mask_sums=[*map(sum, masks)],
            sample_indices=[*each],
            rewards=[0.0 for _ in each],
            raw_reward=[0.0 for _ in each],
        )


_FOUR = (0, 0, 1, 1, 2, 2, 3, 3)
_APART = (5, 2, 9, 5, 2, 7, 9, 7)


@dataclass(frozen=True, slots=True)
class Promises:
    """What a dealer is for."""

    whole_groups: bool = True
    others: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else of the arguments is read."""

    def deals(self) -> Iterator[PartitionCase]:
        """Right ones, then those that no deal can be right of."""
        for balanced in (False, True):
            how = ", balanced" * balanced
            for ranks in (1, 2, 4):
                description = f"4 groups of {GROUP} for {ranks} ranks{how}"
                yield PartitionCase(description, _FOUR, ranks, balanced=balanced)
            description = f"members of groups apart, for 2 ranks{how}"
            yield PartitionCase(description, _APART, 2, balanced=balanced)
            yield PartitionCase(f"12 groups for 3 ranks{how}", _groups(12), 3, balanced=balanced)
        yield PartitionCase("2 optimizer steps for 2 ranks", _groups(8), 2, step=8)
        yield PartitionCase(
            "micro-batches of at most 14 tokens, for 2 ranks", _groups(8), 2, budget=14
        )
        if self.whole_groups:
            yield from _WRONG


def _groups(count: int) -> tuple[int, ...]:
    return tuple(n // GROUP for n in range(GROUP * count))


_WRONG = (
    PartitionCase("3 groups for 2 ranks", _groups(3), 2, wrong="3 groups are no multiple of 2"),
    PartitionCase("2 groups for 4 ranks", _groups(2), 4, wrong="there are fewer groups than ranks"),
    PartitionCase(
        "a group of 3 and one of 1, for 2 ranks",
        (0, 0, 1, 1, 2, 2, 2, 3),
        2,
        wrong=f"every group has {GROUP} samples",
    ),
    PartitionCase(
        "a group short of a sample, for 1 rank",
        (0, 0, 1, 1, 2),
        1,
        wrong=f"every group has {GROUP} samples",
    ),
    PartitionCase(
        "steps of half a group a rank, for 2 ranks",
        _groups(4),
        2,
        step=2,
        wrong="a group's members would be trained in two steps",
    ),
)
