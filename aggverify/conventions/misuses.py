"""Calls that contradict themselves, per convention: what a validating candidate must refuse.

Each spoils good positional arguments in place; they run in a rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from aggverify.conventions.base import Misuse

_NOT_A_DIVISOR = (
    ("missing", None),
    ("zero", 0),
    ("negative", -4.0),
    ("nan", math.nan),
)


def _set(at: int, value: Any) -> Callable[[list[Any]], None]:
    def spoil(arguments: list[Any]) -> None:
        arguments[at] = value

    return spoil


def _shorten(at: int) -> Callable[[list[Any]], None]:
    def spoil(arguments: list[Any]) -> None:
        arguments[at] = arguments[at][:-1]

    return spoil


def _lengthen(at: int) -> Callable[[list[Any]], None]:
    """One token more, of the first axis: more than the masks stand for."""

    def spoil(arguments: list[Any]) -> None:
        import torch

        arguments[at] = torch.cat([arguments[at], arguments[at].new_ones(1)])

    return spoil


def _in_batch(**fields: Any) -> Callable[[list[Any]], None]:
    def spoil(arguments: list[Any]) -> None:
        arguments[1] = replace(arguments[1], **fields)

    return spoil


def _short_in_batch(name: str) -> Callable[[list[Any]], None]:
    def spoil(arguments: list[Any]) -> None:
        short = getattr(arguments[1], name)[:-1]
        arguments[1] = replace(arguments[1], **{name: short})

    return spoil


def _longer_mask(arguments: list[Any]) -> None:
    import torch

    first, *others = arguments[2]
    arguments[2] = [torch.cat([first, first[:1]]), *others]


def _shorter_total(arguments: list[Any]) -> None:
    (_, *totals), lengths = arguments[0], arguments[1]
    arguments[0] = [lengths[0] - 1, *totals]


def _denominators(arguments: list[Any]) -> None:
    arguments[3] = [1.0] * len(arguments[1])


def _repeated_boundary(arguments: list[Any]) -> None:
    arguments[5] = [*arguments[5], arguments[5][0]]


def _no_boundaries(arguments: list[Any]) -> None:
    arguments[5] = None


def _mask_short_of_columns(arguments: list[Any]) -> None:
    arguments[1] = arguments[1][:, :-1]


NATIVE: tuple[Misuse, ...] = (
    Misuse("losses", "one loss more than the masks stand for", _lengthen(0)),
    Misuse("rollouts", "0 rollouts in the step", _in_batch(num_rollouts=0), ("sample_mean",)),
    Misuse("groups", "0 prompt groups in the step", _in_batch(num_groups=0), ("prompt_mean",)),
    Misuse("tokens", "a negative token count", _in_batch(num_tokens=-1), ("token_mean",)),
    Misuse(
        "rollout-tokens",
        "a denominator missing in rollout_tokens",
        _short_in_batch("rollout_tokens"),
        ("sample_mean",),
    ),
    Misuse(
        "group-tokens",
        "a denominator missing in group_tokens",
        _short_in_batch("group_tokens"),
        ("prompt_mean",),
    ),
    *(
        Misuse(f"divisor-{name}", f"divisor {value}", _in_batch(divisor=value), ("constant",))
        for name, value in _NOT_A_DIVISOR
    ),
)
SLIME: tuple[Misuse, ...] = (
    Misuse(
        "denominators",
        "a list of denominators where calculate_per_token_loss is expected",
        _denominators,
    ),
    Misuse("short-lengths", "a response length missing", _shorten(1)),
    Misuse("short-masks", "a loss mask missing", _shorten(2)),
    Misuse("longer-mask", "a loss mask longer than its response", _longer_mask),
    Misuse("shorter-total", "a total length shorter than the response", _shorter_total),
)


def _skyrl(divisor_at: int) -> Iterable[Misuse]:
    yield Misuse(
        "unknown-mode", "loss_reduction 'token-avg', which does not exist", _set(2, "token-avg")
    )
    yield Misuse("no-mode", "loss_reduction None", _set(2, None))
    yield Misuse("short-mask", "a mask with a column missing", _mask_short_of_columns)
    for name, value in _NOT_A_DIVISOR:
        yield Misuse(
            f"divisor-{name}", f"max_seq_len {value}", _set(divisor_at, value), ("constant",)
        )


SKYRL_REDUCE_LOSS: tuple[Misuse, ...] = tuple(_skyrl(3))
SKYRL: tuple[Misuse, ...] = (
    *_skyrl(4),
    Misuse("no-boundaries", "prompt_boundaries None", _no_boundaries, ("prompt_mean",)),
    Misuse("not-covered", "rows that no prompt boundary covers", _shorten(5), ("prompt_mean",)),
    Misuse("overlap", "prompt boundaries that overlap", _repeated_boundary, ("prompt_mean",)),
)
