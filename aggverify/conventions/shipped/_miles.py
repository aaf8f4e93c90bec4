"""What the adapters of miles share.

Its modules, wherever a version keeps them, and a rank's place in its parallel state.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from aggverify.conventions.shipped._homes import found, home
from aggverify.conventions.stand_ins import StandIn

UTILS = "miles.backends.training_utils"


def core() -> Any:
    """Its ``get_sum_of_sample_mean``."""
    homes = (f"{UTILS}.data.context_parallel", f"{UTILS}.cp_utils")
    return found("get_sum_of_sample_mean", *homes)


def merger() -> Any:
    """Return what merges its logs; None before it had any."""
    homes = (f"{UTILS}.metrics.log_utils", f"{UTILS}.log_utils")
    return found("aggregate_train_losses", *homes)


def losses_module() -> Any:
    """Return the module of its losses, in which a policy's log-probabilities are patched."""
    homes = (f"{UTILS}.loss.hub.losses", f"{UTILS}.loss_hub.losses")
    return home("get_log_probs_and_entropy", *homes)


def merged(logs: Any) -> Any:
    """Return the logs of a rank's micro-batches, each with what the trainer passes next to them."""
    takes = inspect.signature(merger()).parameters
    return merger()(logs, **{name: logs[0][name] for name in takes if name in logs[0]})


def placed(batch: Any, *, context_parallel: bool = True) -> Any:
    """Return the parallel state of this rank, set.

    Without replicas, tensor or pipeline parallelism.
    """

    def ranks(rank: int, size: int, group: Any) -> StandIn:
        groups = {"groups_inner_to_outer": [group], "gloo_groups_inner_to_outer": [group]}
        return StandIn(rank=rank, size=size, group=group, gloo_group=group, **groups)

    alone = ranks(0, 1, None)
    data = ranks(batch.dp_rank, batch.dp_size, batch.dp_group)
    cp, both = alone, data
    if context_parallel:
        cp = ranks(batch.cp_rank, batch.cp_size, batch.cp_group)
        rank, size = batch.dp_rank * batch.cp_size + batch.cp_rank, batch.dp_size * batch.cp_size
        both = ranks(rank, size, batch.dp_cp_group)
    state = StandIn(
        cp=cp,
        **dict.fromkeys(("intra_dp", "effective_dp"), data),
        **dict.fromkeys(("intra_dp_cp", "effective_dp_cp"), both),
        **dict.fromkeys(("tp", "pp", "ep", "etp", "indep_dp"), alone),
        is_pp_last_stage=True,
        is_ulysses_cp=False,
    )
    import_module(f"{UTILS}.parallel").set_parallel_state(state)
    return state


def custom_loss(args: Any, batch: Any, logits: Any, sum_of_sample_mean: Any) -> Any:
    """Return a loss that hands the model's output on, as per-token losses, with a metric."""
    loss = sum_of_sample_mean(logits)
    metric = sum_of_sample_mean(logits.detach().abs())
    return loss, {"loss": loss.detach(), "metric": metric}
