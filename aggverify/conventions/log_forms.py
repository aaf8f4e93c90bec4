"""Logs of a micro-batch as slime and miles write them, and what must not be in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggverify.conventions.stand_ins import StandInDict

KEYS = ("loss", "kl")
Log = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogTerm:
    """What one micro-batch on one rank adds to a key.

    This rank's sum, and what it is a mean over, of which every context-parallel rank counts all.
    """

    total: float
    count: int


def part(key: str, dp: int, cp: int, k: int, *, shared: bool) -> LogTerm:
    """Numbers that no two places share; in float32, where frameworks keep them."""
    n = KEYS.index(key)
    own = 2 + dp + 2 * k
    return LogTerm(
        float(np.float32((7 * dp + 3 * cp + k + 1 + n) / 10)), own if shared else own + n
    )


def legacy(parts: Mapping[str, LogTerm]) -> Log:
    """Return slime's and miles' log of a micro-batch: one count for all keys, in front of them."""
    import torch

    [count] = {p.count for p in parts.values()}
    values = torch.tensor([count, *(p.total for p in parts.values())])
    return StandInDict(keys=[*parts], values=values)


def normalised(parts: Mapping[str, LogTerm]) -> Log:
    """Return the same with a count for each key."""
    import torch

    return StandInDict(
        keys=[*parts],
        values=torch.tensor([p.total for p in parts.values()]),
        normalizers=torch.tensor([float(p.count) for p in parts.values()]),
    )


def _reordered(logs: list[Log]) -> None:
    logs[-1]["keys"] = logs[-1]["keys"][::-1]


def _other_keys(logs: list[Log]) -> None:
    logs[-1]["keys"] = [*logs[-1]["keys"][:-1], "entropy"]


def _shorter(logs: list[Log]) -> None:
    for log in logs:
        log["values"] = log["values"][:-1]


def _longer(logs: list[Log]) -> None:
    import torch

    for log in logs:
        log["values"] = torch.cat([log["values"], log["values"][:1]])


def _short_counts(logs: list[Log]) -> None:
    for log in logs:
        log["normalizers"] = log["normalizers"][:-1]


def mixed(logs: list[Log]) -> None:
    """Of the other form in the last micro-batch."""
    form = legacy if "normalizers" in logs[-1] else normalised
    logs[-1] = form({key: LogTerm(1.0, 2) for key in KEYS})


Spoil = Callable[[list[Log]], None]
_BOTH: Mapping[str, Spoil] = {
    "keys in another order in one micro-batch": _reordered,
    "another key in one micro-batch": _other_keys,
    "a value less than keys": _shorter,
    "a value more than keys": _longer,
}


@dataclass(frozen=True, slots=True)
class LogForm:
    """How logs are written and merged, and what must be refused.

    ``shared``: one count for all keys; ``over_rollouts``: it is not used, and each key's sum is
    divided by the step's rollouts.
    """

    write: Callable[[Mapping[str, LogTerm]], Log]
    spoils: Mapping[str, Spoil]
    shared: bool = False
    over_rollouts: bool = False


BOTH_MERGED = ("legacy", "normalised")
"""What is merged where nothing else is declared."""
FORMS: Mapping[str, LogForm] = {
    "legacy": LogForm(legacy, {**_BOTH, "a normalised log after legacy ones": mixed}, shared=True),
    "normalised": LogForm(
        normalised,
        {
            **_BOTH,
            "a normalizer less than keys": _short_counts,
            "a legacy log after normalised ones": mixed,
        },
    ),
    "rollouts": LogForm(legacy, _BOTH, shared=True, over_rollouts=True),
}
