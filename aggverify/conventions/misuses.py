"""Calls that contradict themselves, per convention: what a validating candidate must refuse.

Each spoils the arguments of a good call, by their names; they run in a rank.
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


Arguments = dict[str, Any]


Spoil = Callable[[Arguments], None]
"""What turns a good call's arguments into a misuse."""


def _set(name: str, value: Any) -> Spoil:
    def spoil(arguments: Arguments) -> None:
        arguments[name] = value

    return spoil


def _shorten(name: str) -> Spoil:
    def spoil(arguments: Arguments) -> None:
        arguments[name] = arguments[name][:-1]

    return spoil


def _lengthen(name: str) -> Spoil:
    """One token more, of the first axis: more than the masks stand for."""

    def spoil(arguments: Arguments) -> None:
        import torch

        arguments[name] = torch.cat([arguments[name], arguments[name].new_ones(1)])

    return spoil


def _in_batch(name: str, value: Any) -> Spoil:
    def spoil(arguments: Arguments) -> None:
        arguments["batch"] = replace(arguments["batch"], **{name: value})

    return spoil


def _short_in_batch(name: str) -> Spoil:
    def spoil(arguments: Arguments) -> None:
        short = getattr(arguments["batch"], name)[:-1]
        arguments["batch"] = replace(arguments["batch"], **{name: short})

    return spoil


def _longer_mask() -> Spoil:
    def spoil(arguments: Arguments) -> None:
        import torch

        first, *others = arguments["loss_masks"]
        arguments["loss_masks"] = [torch.cat([first, first[:1]]), *others]

    return spoil


def _shorter_total() -> Spoil:
    def spoil(arguments: Arguments) -> None:
        _, *totals = arguments["total_lengths"]
        arguments["total_lengths"] = [arguments["response_lengths"][0] - 1, *totals]

    return spoil


def _denominators() -> Spoil:
    def spoil(arguments: Arguments) -> None:
        arguments["calculate_per_token_loss"] = [1.0] * len(arguments["response_lengths"])

    return spoil


def _repeated_boundary() -> Spoil:
    def spoil(arguments: Arguments) -> None:
        boundaries = arguments["prompt_boundaries"]
        arguments["prompt_boundaries"] = [*boundaries, boundaries[0]]

    return spoil


def _mask_short_of_columns() -> Spoil:
    def spoil(arguments: Arguments) -> None:
        arguments["loss_mask"] = arguments["loss_mask"][:, :-1]

    return spoil


NATIVE: tuple[Misuse, ...] = (
    Misuse("losses", "one loss more than the masks stand for", _lengthen("losses")),
    Misuse("rollouts", "0 rollouts in the step", _in_batch("num_rollouts", 0), ("sample_mean",)),
    Misuse("groups", "0 prompt groups in the step", _in_batch("num_groups", 0), ("prompt_mean",)),
    Misuse("tokens", "a negative token count", _in_batch("num_tokens", -1), ("token_mean",)),
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
        Misuse(f"divisor-{name}", f"divisor {value}", _in_batch("divisor", value), ("constant",))
        for name, value in _NOT_A_DIVISOR
    ),
)
POLICY_LOSS: tuple[Misuse, ...] = (
    Misuse("log-probs", "one log-probability more than advantages", _lengthen("log_probs")),
    Misuse("advantages", "one advantage more than log-probabilities", _lengthen("advantages")),
    *NATIVE[1:],
)
SLIME: tuple[Misuse, ...] = (
    Misuse(
        "denominators",
        "a list of denominators where calculate_per_token_loss is expected",
        _denominators(),
    ),
    Misuse("short-lengths", "a response length missing", _shorten("response_lengths")),
    Misuse("short-masks", "a loss mask missing", _shorten("loss_masks")),
    Misuse("longer-mask", "a loss mask longer than its response", _longer_mask()),
    Misuse("shorter-total", "a total length shorter than the response", _shorter_total()),
)


def _skyrl() -> Iterable[Misuse]:
    yield Misuse(
        "unknown-mode",
        "loss_reduction 'token-avg', which does not exist",
        _set("loss_reduction", "token-avg"),
    )
    yield Misuse("no-mode", "loss_reduction None", _set("loss_reduction", None))
    yield Misuse("short-mask", "a mask with a column missing", _mask_short_of_columns())
    for name, value in _NOT_A_DIVISOR:
        yield Misuse(
            f"divisor-{name}", f"max_seq_len {value}", _set("max_seq_len", value), ("constant",)
        )


SKYRL: tuple[Misuse, ...] = (
    *_skyrl(),
    Misuse(
        "no-boundaries", "prompt_boundaries None", _set("prompt_boundaries", None), ("prompt_mean",)
    ),
    Misuse(
        "not-covered",
        "rows that no prompt boundary covers",
        _shorten("prompt_boundaries"),
        ("prompt_mean",),
    ),
    Misuse("overlap", "prompt boundaries that overlap", _repeated_boundary(), ("prompt_mean",)),
)
