"""The line that a trainer has: where per-token losses, or log-probabilities, become the loss.

Nothing is imported, and nothing done, unless ``AGGVERIFY_PROBE`` names a folder when the process
starts.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")
_FOLDER = os.environ.get("AGGVERIFY_PROBE")


def probe(
    losses: T,
    mask: Any = None,
    *,
    sample_ids: Any = None,
    group_ids: Any = None,
    rollout_ids: Any = None,
    positions: Any = None,
    lengths: Any = None,
    count: Any = None,
    name: str = "loss",
    step: int | None = None,
) -> T:
    """Return the losses themselves; while an audit records, the weight of each token is read off.

    ``losses``: (samples, tokens), or 1-D with ``lengths`` of the samples. ``mask``: of the same
    shape. Ids: one a sample or a token; a ``sample_id`` below 0 is a dummy. ``positions``: of each
    token in its sample, where samples are sharded. ``count``: the token count that is returned
    next to the loss. ``name``: of a further term, ``"kl"``. ``step``: the optimizer step, where no
    torch optimizer makes it.
    """
    if not _FOLDER:
        return losses
    known = {"sample_ids": sample_ids, "group_ids": group_ids, "rollout_ids": rollout_ids}
    known |= {"positions": positions, "lengths": lengths, "count": count}
    found: T = _recorder().losses(losses, mask, name, step, known)
    return found


def probe_log_probs(
    log_probs: T,
    advantages: Any,
    mask: Any = None,
    *,
    old_log_probs: Any = None,
    sample_ids: Any = None,
    group_ids: Any = None,
    rollout_ids: Any = None,
    positions: Any = None,
    lengths: Any = None,
    count: Any = None,
    step: int | None = None,
) -> T:
    """Return the log-probabilities, as :func:`probe` for trainers without losses by token.

    A token's loss is minus its ratio times its advantage; a token whose advantage is 0 shows no
    weight. ``old_log_probs``: those that ratios are taken to, where they are not all 1.
    """
    if not _FOLDER:
        return log_probs
    known = {"sample_ids": sample_ids, "group_ids": group_ids, "rollout_ids": rollout_ids}
    known |= {"positions": positions, "lengths": lengths, "count": count}
    found: T = _recorder().log_probs(log_probs, advantages, old_log_probs, mask, step, known)
    return found


def _recorder() -> Any:
    """Import the recorder only now and by name: importing the probes imports nothing else."""
    return import_module("aggverify.audit.recorder").recorder(_FOLDER)
