"""The shipped functions that merge logs, under names of their own."""

import runpy
from typing import Any

import torch
import torch.distributed as dist

from tests.conftest import EXAMPLES


def _merger(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / "log_reducer" / f"{name}.py"))["reduce_logs"]


means = _merger("means")
one_count = _merger("broken/one_count")
truncated = _merger("broken/truncated")


def reduce_train_step_metrics(
    losses_reduced: Any,
    *,
    calculate_per_token_loss: bool,
    step_global_batch_size: int,
    cp_size: int,
    dp_with_cp_group: Any,
) -> Any:
    """slime's, by keyword, with its logs compared."""
    keys = losses_reduced[0]["keys"]
    for log in losses_reduced:
        if log["keys"] != keys or len(log["values"]) != len(keys) + 1:
            raise ValueError(f"{log['keys']} with {len(log['values'])} values after {keys}")
    both = torch.stack([log["values"].double() for log in losses_reduced]).sum(0)
    dist.all_reduce(both, group=dp_with_cp_group)
    count, *values = both.tolist()
    if not calculate_per_token_loss:
        count, cp_size = step_global_batch_size, 1
    return {key: value * cp_size / count for key, value in zip(keys, values, strict=True)}


def by_position(losses_reduced: Any, **others: Any) -> Any:
    """slime's, which compares nothing."""
    first = losses_reduced[0]["keys"]
    return reduce_train_step_metrics([{**log, "keys": first} for log in losses_reduced], **others)


def over_tokens(losses_reduced: Any, **others: Any) -> Any:
    """By a count of tokens where it is one of rollouts."""
    others["calculate_per_token_loss"] = not others["calculate_per_token_loss"]
    return reduce_train_step_metrics(losses_reduced, **others)
