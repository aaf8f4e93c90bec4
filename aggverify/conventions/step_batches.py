"""The micro-batches of a step, as its trainer has them on each rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from aggverify.conventions.base import Site, mask_tensor, placed
from aggverify.conventions.lazy_fields import LazyFields
from aggverify.conventions.micro_batch import MicroBatch
from aggverify.oracles import Step
from aggverify.steps.layouts import positions, visible_pieces


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What a step's denominators are made of; not to be changed, as all of its layouts share it."""

    counted: Sequence[int]
    """Tokens of each sample."""
    rollouts: Mapping[int, int]
    """Tokens of each rollout, in order of first appearance."""
    groups: Mapping[int, int]
    """Tokens of each prompt group."""
    rollouts_of: Mapping[int, int]
    """Rollouts of each prompt group."""
    tokens: int
    samples: int
    """With one more for tokens that are elsewhere."""
    valid: int
    """Of these, those with an unmasked token."""
    width: int
    """The longest response."""


@lru_cache(maxsize=16)
def _counts(step: Step, counts_rejected: bool, elsewhere: int) -> StepCounts:
    counted = [s.num_original if counts_rejected else s.num_unmasked for s in step.samples]

    def over(units: Mapping[int, Sequence[int]]) -> dict[int, int]:
        found = {name: sum([counted[i] for i in own]) for name, own in units.items()}
        if elsewhere:
            found[1 + max(found)] = elsewhere
        return found

    names = [sample.rollout for sample in step.samples]
    rollouts_of = {name: len({names[i] for i in own}) for name, own in step.groups.items()}
    tokens = sum(counted) + elsewhere
    more, width = bool(elsewhere), max([len(s.loss_mask) for s in step.samples])
    samples, valid = len(counted) + more, len(counted) - counted.count(0) + more
    rollouts, groups = over(step.rollouts), over(step.groups)
    return StepCounts(counted, rollouts, groups, rollouts_of, tokens, samples, valid, width)


class Totals:
    """The step's counts as this rank's trainer has them: the same for all of its micro-batches."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.step = _counts(site.case.step, site.counts_rejected, site.elsewhere)

    @cached_property
    def extent(self) -> dict[str, Any]:
        """What a batch has of the step and of its rank, except the denominators."""
        every, counts = self._site.case.step.samples, self.step
        cells = self._site.case.layout.micro_batches[self._site.dp_rank]
        samples = [every[i] for cell in cells for i in cell]
        own = [counts.counted[i] for cell in cells for i in cell]
        # So many that the mean of both windows can never be this step's own count.
        others = 2 * counts.tokens + 3 if self._site.generations else 0
        return {
            "generation_windows": 1 + self._site.generations,
            "generation_tokens": counts.tokens + others,
            "num_samples": counts.samples,
            "num_valid_samples": counts.valid,
            "rank_samples": len(own),
            "rank_valid_samples": len(own) - own.count(0),
            "rank_rollouts": len({s.rollout for s in samples}),
            "rank_groups": len({s.group for s in samples}),
            "rank_tokens": sum(own),
            "rank_width": max([s.total_length for s in samples]),
            "step_width": counts.width,
        }


def numbers(site: Site, k: int, totals: Totals, mode: str | bool | None) -> dict[str, Any]:
    """All of micro-batch ``k`` that is neither a tensor nor a group; no list is shared."""
    step, layout = site.case.step, site.case.layout
    members = layout.micro_batches[site.dp_rank][k]
    samples = [step.samples[i] for i in members]
    rollouts, groups = [s.rollout for s in samples], [s.group for s in samples]
    lengths, counts = [len(s.loss_mask) for s in samples], totals.step
    return {
        "samples": list(members),
        "response_lengths": lengths,
        "total_lengths": [s.total_length for s in samples],
        "rollout_ids": rollouts,
        "group_ids": groups,
        "rollout_tokens": [counts.rollouts[name] for name in rollouts],
        "group_tokens": [counts.groups[name] for name in groups],
        "group_rollouts": [counts.rollouts_of[name] for name in groups],
        "step_rollout_tokens": list(counts.rollouts.values()),
        "num_rollouts": len(counts.rollouts),
        "num_groups": len(counts.groups),
        "num_tokens": counts.tokens,
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
    # Each of its own memory: what is done to one mask must not reach the others.
    whole = mask_tensor(b"".join([s.loss_mask for s in samples]), np.int64, site.device)
    if all(s.original_mask is None for s in samples):
        original = whole.clone()
    else:
        before = b"".join([s.original_mask or s.loss_mask for s in samples])
        original = mask_tensor(before, np.int64, site.device)
    if layout.cp_size == 1 or plain["gathered"]:
        seen, own = whole.clone(), lengths
    else:
        pieces = visible_pieces(step, members, layout, site.cp_rank)
        starts = list(accumulate(lengths, initial=0))[:-1]
        seen = whole.index_select(
            0, placed(torch.from_numpy(positions(starts, pieces)), site.device)
        )
        own = [sum([b - a for a, b in piece]) for piece in pieces]
    return MicroBatch(
        loss_masks=list(whole.split_with_sizes(lengths)),
        original_masks=list(original.split_with_sizes(lengths)),
        local_masks=list(seen.split_with_sizes(own)),
        dp_group=site.dp_group,
        cp_group=site.cp_group,
        dp_cp_group=torch.distributed.group.WORLD,
        _lazy=LazyFields(site, members),
        **plain,
    )
