"""Calls that contradict themselves, per convention: what a validating candidate must refuse.

Each spoils the arguments of a good call, by their names; they run in a rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from aggverify.conventions.base import Misuse
from aggverify.conventions.plain_text import number

_NOT_A_DIVISOR = (
    ("missing", None),
    ("zero", 0),
    ("negative", -4.0),
    ("nan", math.nan),
)


Arguments = dict[str, Any]


class Spoil(NamedTuple):
    """What turns a good call's arguments into a misuse, and the same as a script's line."""

    spoil: Callable[[Arguments], None]
    line: str


def _misuse(name: str, sentence: str, how: Spoil, modes: tuple[str, ...] = ()) -> Misuse:
    return Misuse(name, sentence, how.spoil, modes, how.line)


def _set(name: str, value: Any) -> Spoil:
    def spoil(arguments: Arguments) -> None:
        arguments[name] = value

    return Spoil(spoil, f"given[{name!r}] = {_literal(value)}")


def _literal(value: Any) -> str:
    return number(value) if isinstance(value, float) else repr(value)


def _shorten(name: str) -> Spoil:
    def spoil(arguments: Arguments) -> None:
        arguments[name] = arguments[name][:-1]

    return Spoil(spoil, f"given[{name!r}] = given[{name!r}][:-1]")


def _lengthen(name: str) -> Spoil:
    """One token more, of the first axis: more than the masks stand for."""

    def spoil(arguments: Arguments) -> None:
        import torch

        arguments[name] = torch.cat([arguments[name], arguments[name].new_ones(1)])

    return Spoil(
        spoil, f"given[{name!r}] = torch.cat([given[{name!r}], given[{name!r}].new_ones(1)])"
    )


def _in_batch(name: str, value: Any) -> Spoil:
    def spoil(arguments: Arguments) -> None:
        arguments["batch"] = replace(arguments["batch"], **{name: value})

    return Spoil(spoil, f'given["batch"].{name} = {_literal(value)}')


def _short_in_batch(name: str) -> Spoil:
    def spoil(arguments: Arguments) -> None:
        short = getattr(arguments["batch"], name)[:-1]
        arguments["batch"] = replace(arguments["batch"], **{name: short})

    return Spoil(spoil, f'given["batch"].{name} = given["batch"].{name}[:-1]')


def _longer_mask() -> Spoil:
    def spoil(arguments: Arguments) -> None:
        import torch

        first, *others = arguments["loss_masks"]
        arguments["loss_masks"] = [torch.cat([first, first[:1]]), *others]

    first = 'given["loss_masks"][0]'
    return Spoil(spoil, f"{first} = torch.cat([{first}, {first}[:1]])")


def _shorter_total() -> Spoil:
    def spoil(arguments: Arguments) -> None:
        _, *totals = arguments["total_lengths"]
        arguments["total_lengths"] = [arguments["response_lengths"][0] - 1, *totals]

    return Spoil(spoil, 'given["total_lengths"][0] = given["response_lengths"][0] - 1')


def _denominators() -> Spoil:
    def spoil(arguments: Arguments) -> None:
        arguments["calculate_per_token_loss"] = [1.0] * len(arguments["response_lengths"])

    flag = 'given["calculate_per_token_loss"]'
    return Spoil(spoil, f'{flag} = [1.0] * len(given["response_lengths"])')


def _repeated_boundary() -> Spoil:
    def spoil(arguments: Arguments) -> None:
        boundaries = arguments["prompt_boundaries"]
        arguments["prompt_boundaries"] = [*boundaries, boundaries[0]]

    boundaries = 'given["prompt_boundaries"]'
    return Spoil(spoil, f"{boundaries} = [*{boundaries}, {boundaries}[0]]")


def _mask_short_of_columns() -> Spoil:
    def spoil(arguments: Arguments) -> None:
        arguments["loss_mask"] = arguments["loss_mask"][:, :-1]

    return Spoil(spoil, 'given["loss_mask"] = given["loss_mask"][:, :-1]')


NATIVE: tuple[Misuse, ...] = (
    _misuse("losses", "one loss more than the masks stand for", _lengthen("losses")),
    _misuse("rollouts", "0 rollouts in the step", _in_batch("num_rollouts", 0), ("sample_mean",)),
    _misuse("groups", "0 prompt groups in the step", _in_batch("num_groups", 0), ("prompt_mean",)),
    _misuse("tokens", "a negative token count", _in_batch("num_tokens", -1), ("token_mean",)),
    _misuse(
        "rollout-tokens",
        "a denominator missing in rollout_tokens",
        _short_in_batch("rollout_tokens"),
        ("sample_mean",),
    ),
    _misuse(
        "group-tokens",
        "a denominator missing in group_tokens",
        _short_in_batch("group_tokens"),
        ("prompt_mean",),
    ),
    *(
        _misuse(f"divisor-{name}", f"divisor {value}", _in_batch("divisor", value), ("constant",))
        for name, value in _NOT_A_DIVISOR
    ),
)
POLICY_LOSS: tuple[Misuse, ...] = (
    _misuse("log-probs", "one log-probability more than advantages", _lengthen("log_probs")),
    _misuse("advantages", "one advantage more than log-probabilities", _lengthen("advantages")),
    *NATIVE[1:],
)
SLIME: tuple[Misuse, ...] = (
    _misuse(
        "denominators",
        "a list of denominators where calculate_per_token_loss is expected",
        _denominators(),
    ),
    _misuse("short-lengths", "a response length missing", _shorten("response_lengths")),
    _misuse("short-masks", "a loss mask missing", _shorten("loss_masks")),
    _misuse("longer-mask", "a loss mask longer than its response", _longer_mask()),
    _misuse("shorter-total", "a total length shorter than the response", _shorter_total()),
)


def _skyrl() -> Iterable[Misuse]:
    yield _misuse(
        "unknown-mode",
        "loss_reduction 'token-avg', which does not exist",
        _set("loss_reduction", "token-avg"),
    )
    yield _misuse("no-mode", "loss_reduction None", _set("loss_reduction", None))
    yield _misuse("short-mask", "a mask with a column missing", _mask_short_of_columns())
    for name, value in _NOT_A_DIVISOR:
        yield _misuse(
            f"divisor-{name}", f"max_seq_len {value}", _set("max_seq_len", value), ("constant",)
        )


SKYRL: tuple[Misuse, ...] = (
    *_skyrl(),
    _misuse(
        "no-boundaries", "prompt_boundaries None", _set("prompt_boundaries", None), ("prompt_mean",)
    ),
    _misuse(
        "not-covered",
        "rows that no prompt boundary covers",
        _shorten("prompt_boundaries"),
        ("prompt_mean",),
    ),
    _misuse("overlap", "prompt boundaries that overlap", _repeated_boundary(), ("prompt_mean",)),
)
