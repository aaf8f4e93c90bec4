"""The micro-batches of a step, as its trainer has them on each rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from aggverify.conventions.base import Site, mask_tensor
from aggverify.conventions.beyond import Beyond
from aggverify.conventions.micro_batch import MicroBatch
from aggverify.steps.layouts import positions, rank_width, visible_pieces


class Totals:
    """The step's counts as this rank's trainer has them: the same for all of its micro-batches."""

    def __init__(self, site: Site) -> None:
        step = site.case.step
        self._site = site
        self._counted = [site.counted(i) for i in range(len(step.samples))]
        self.rollouts = self._over(step.rollouts)
        self.groups = self._over(step.groups)
        if site.elsewhere:
            self.rollouts[1 + max(self.rollouts)] = site.elsewhere
            self.groups[1 + max(self.groups)] = site.elsewhere
        self.tokens = sum(self._counted) + site.elsewhere

    def _over(self, units: Mapping[int, Sequence[int]]) -> dict[int, int]:
        return {name: sum([self._counted[i] for i in own]) for name, own in units.items()}

    @cached_property
    def extent(self) -> dict[str, Any]:
        """What a batch has of the step and of its rank beside the denominators."""
        step, layout = self._site.case.step, self._site.case.layout
        mine = [i for cell in layout.micro_batches[self._site.dp_rank] for i in cell]
        # As many as no window of this step's tokens can have: their mean is not its own.
        others = 2 * self.tokens + 3 if self._site.generations else 0
        return {
            "generation_windows": 1 + self._site.generations,
            "generation_tokens": self.tokens + others,
            "num_samples": len(step.samples) + bool(self._site.elsewhere),
            "num_valid_samples": sum(n > 0 for n in self._counted) + bool(self._site.elsewhere),
            "rank_samples": len(mine),
            "rank_valid_samples": sum(self._counted[i] > 0 for i in mine),
            "rank_rollouts": len({step.samples[i].rollout for i in mine}),
            "rank_groups": len({step.samples[i].group for i in mine}),
            "rank_tokens": sum([self._counted[i] for i in mine]),
            "rank_width": rank_width(step, mine, layout),
            "step_width": max((s.response_length for s in step.samples), default=0),
        }

    @cached_property
    def rollouts_of(self) -> dict[int, int]:
        """Rollouts of every prompt group."""
        step = self._site.case.step
        return {
            name: len({step.samples[i].rollout for i in own}) for name, own in step.groups.items()
        }


def numbers(site: Site, k: int, totals: Totals, mode: str | bool | None) -> dict[str, Any]:
    """All of micro-batch ``k`` that is neither a tensor nor a group; no list is shared."""
    step, layout = site.case.step, site.case.layout
    members = layout.micro_batches[site.dp_rank][k]
    samples = [step.samples[i] for i in members]
    return {
        "samples": list(members),
        "response_lengths": [s.response_length for s in samples],
        "total_lengths": [s.prompt_length + s.response_length for s in samples],
        "rollout_ids": [s.rollout for s in samples],
        "group_ids": [s.group for s in samples],
        "rollout_tokens": [totals.rollouts[s.rollout] for s in samples],
        "group_tokens": [totals.groups[s.group] for s in samples],
        "group_rollouts": [totals.rollouts_of[s.group] for s in samples],
        "step_rollout_tokens": list(totals.rollouts.values()),
        "num_rollouts": len(totals.rollouts),
        "num_groups": len(totals.groups),
        "num_tokens": totals.tokens,
        "num_microbatches": layout.num_microbatches,
        "divisor": site.divisor,
        "dp_rank": site.dp_rank,
        "dp_size": layout.dp_size,
        "cp_rank": site.cp_rank,
        "cp_size": layout.cp_size,
        "gathered": layout.cp_size > 1 and layout.cp_kind == "gathered",
        "cp_kind": layout.cp_kind,
        "mode": mode,
        "per_token": site.per_token,
        "index": k,
        **totals.extent,
    }


def micro_batch(site: Site, k: int, totals: Totals, mode: str | bool | None = None) -> MicroBatch:
    """Build what the reducer receives for micro-batch ``k``; nothing in it is shared."""
    import torch

    step, layout = site.case.step, site.case.layout
    members = layout.micro_batches[site.dp_rank][k]
    samples = [step.samples[i] for i in members]
    plain = numbers(site, k, totals, mode)
    lengths = plain["response_lengths"]
    masks = b"".join(s.loss_mask for s in samples)
    originals = b"".join(s.original_mask or s.loss_mask for s in samples)
    pieces = visible_pieces(step, members, layout, site.cp_rank)
    starts = list(accumulate(lengths, initial=0))[:-1]
    # Each of its own memory: what is done to one mask must not reach the others.
    whole, original = (mask_tensor(flat, np.int64, site.device) for flat in (masks, originals))
    seen = whole.index_select(0, torch.from_numpy(positions(starts, pieces)).to(site.device))
    return MicroBatch(
        loss_masks=list(whole.split_with_sizes(lengths)),
        original_masks=list(original.split_with_sizes(lengths)),
        local_masks=list(seen.split_with_sizes([sum([b - a for a, b in p]) for p in pieces])),
        dp_group=site.dp_group,
        cp_group=site.cp_group,
        dp_cp_group=torch.distributed.group.WORLD,
        _beyond=Beyond(site, members),
        **plain,
    )
