"""AReaL's ``PolicyGradientReduction``: a micro-batch's mean, and the weight of that.

Its engine combines them by the weight: sum(mean * weight) / sum(weight).
"""

from itertools import groupby
from typing import Any

ADAPTER = {
    "title": "AReaL, configurable loss aggregation",
    "function": "PolicyGradientReduction",
    "parameters": ["mode", "divisor"],
    "named": True,
    "engine": "areal",
    "rows": "packed",
    "modes": {
        "token_mean": "token_mean",
        "sample_mean": "seq_mean",
        "prompt_mean": "prompt_mean",
        "constant": "constant",
    },
    "whole_groups": {"prompt_mean": "it gets only the groups of its own micro-batch"},
    "not_claimed": {
        "context-parallel": "log-probabilities are gathered before the loss",
        "contiguous": "log-probabilities are gathered before the loss",
        "gathered": "each rank's backward takes its own slice, which the loss does not see",
        "fan-out": "a sequence is a rollout",
        "rejection": "the mask is taken as final",
    },
    "notes": [
        "only active sequences and groups count: --policy empty_units=exclude is its reading, in "
        "constant mode --policy constant_count=valid_rollouts",
        "clipping, importance ratios, KL and rejection sampling are not exercised",
    ],
    "run_against": [["areal-project/AReaL", "5f61b972c", "2026-11-27"]],
}


def call(reduction: Any, losses: Any, batch: Any) -> Any:
    mine = reduction(mode=batch.mode, divisor=batch.divisor)
    mask, ends = batch.mask.bool(), batch.cu_seqlens
    sizes = [len([*own]) for _, own in groupby(batch.group_ids)]
    loss = mine.aggregate(losses, mask, cu_seqlens=ends, group_sizes=sizes)
    data = {"loss_mask": mask, "cu_seqlens": ends, "group_sizes": sizes}
    return loss, mine.normalizer_fn(data)
