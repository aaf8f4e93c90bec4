"""What the adapters of SkyRL's workers share: how its driver scales the advantages of a step."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch


def utils() -> Any:
    """Its module of losses and reductions."""
    return import_module("skyrl.backends.skyrl_train.utils.ppo_utils")


def scaled_by_driver(batch: Any, dtype: Any) -> Any:
    """Return what the driver makes of advantages of 1, for all rows of the step."""
    masks = batch.padded(batch.step_masks, width="step").to(dtype)
    given = [torch.ones_like(masks), masks, batch.mode, len(batch.samples), batch.divisor]
    if batch.mode == "prompt_mean":  # (first row, row after the last) of each
        groups = batch.step_group_ids
        ends = {group: row + 1 for row, group in enumerate(groups)}
        given.append([(groups.index(group), end) for group, end in ends.items()])
    return utils().apply_loss_reduction_to_advantages_minibatch(*given)
