"""What a rank reports of one assignment, apart from the gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aggverify.trainer.argument_text import Argument

Log = tuple[tuple[str, tuple[float, ...]], ...] | str | None
"""A micro-batch's log: keys in order with one number or two, or the text of its fault."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One rank's account of a case it has run."""

    losses: tuple[float, ...] = ()
    """What the candidate returned, per micro-batch."""
    counts: tuple[int, ...] = ()
    """Token counts per micro-batch: the reducer's own, or the trainer's."""
    logs: tuple[Log, ...] = ()
    """Per micro-batch, where the candidate returned any."""
    checksum: int = 0
    """CRC-32 of the reduced gradient, which all ranks must share."""
    changed: tuple[str, ...] = ()
    """Arguments that a watched candidate altered."""
    clips: tuple[tuple[float, float], ...] = ()
    """The largest norm, and the kind of norm, of every call of torch's clip_grad_norm_."""
    refusals: tuple[tuple[str, str | None], ...] = ()
    """Misuses by name, with what the candidate refused each; None for one it accepted."""
    given: tuple[Argument, ...] = ()
    """What the candidate was called with, where that was asked."""
    first_seconds: float = 0.0
    """Processor time, where it was the rank's first case."""
    call_seconds: float = 0.0
    """By the clock, of one call of the candidate; 0.0 where it is next to nothing."""

    peak_bytes: int = 0
    """What the rank has held at most, after a large step; 0 after others."""

    compiles: bool = False
    """Whether the candidate has called something that it gave to torch.compile."""

    lines: tuple[int, ...] = ()
    """Lines of the candidate's file that ran."""

    outcomes: tuple[int, ...] = ()
    """Of its conditions, as ``trainer.conditions`` numbers them."""

    communicates: bool = False
    """Whether a virtual rank issued a collective, which has come to nothing."""

    def to_json(self) -> dict[str, Any]:
        """Plain data, floats in their exact hexadecimal form; what is empty is left out."""
        data: dict[str, Any] = {
            "losses": [x.hex() for x in self.losses],
            "counts": list(self.counts),
            "checksum": self.checksum,
        }
        if self.logs:
            data["logs"] = list(map(_written, self.logs))
        if self.changed:
            data["changed"] = list(self.changed)
        if self.clips:
            data["clips"] = [[x.hex() for x in clip] for clip in self.clips]
        if self.refusals:
            data["refusals"] = list(map(list, self.refusals))
        if self.lines:
            data["lines"] = list(self.lines)
        if self.outcomes:
            data["outcomes"] = list(self.outcomes)
        if self.given:
            data["given"] = list(map(list, self.given))
        if self.first_seconds:
            data["first_seconds"] = self.first_seconds
        if self.compiles:
            data["compiles"] = True
        if self.communicates:
            data["communicates"] = True
        if self.peak_bytes:
            data["peak_bytes"] = self.peak_bytes
        if self.call_seconds:
            data["call_seconds"] = self.call_seconds
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Answer:
        """Rebuild an answer from :meth:`to_json`'s data.

        KeyError, TypeError, ValueError, ArithmeticError or AttributeError for anything else.
        """
        read = {name: _READ.get(name, _as_it_is)(value) for name, value in data.items()}
        if "losses" not in read:
            raise KeyError("losses")
        return Answer(**read)


def _written(log: Log) -> Any:
    if log is None or isinstance(log, str):
        return log
    return [[key, [x.hex() for x in numbers]] for key, numbers in log]


def _read(data: Any) -> Log:
    if data is None or isinstance(data, str):
        return data
    log = tuple((str(key), tuple(map(float.fromhex, numbers))) for key, numbers in data)
    if any(len(numbers) not in (1, 2) for _, numbers in log):
        raise ValueError("a log has one number or two for each key")
    return log


def _clip(data: Any) -> tuple[float, float]:
    norm, kind = map(float.fromhex, data)
    return norm, kind


def _refusal(data: Any) -> tuple[str, str | None]:
    name, message = data
    return str(name), None if message is None else str(message)


def _given(data: Any) -> Argument:
    name, kind, value = map(str, data)
    return name, kind, value


def _as_it_is(data: Any) -> Any:
    return data  # a field that no answer has: making an Answer of it raises TypeError


def _number(data: Any) -> int:
    if type(data) is not int:
        raise TypeError(f"{data!r} is no whole number")
    return data


def _bytes(data: Any) -> int:
    if not 0 <= _number(data) < 1 << 63:
        raise ValueError(f"{data} bytes cannot be")
    return int(data)


def _flag(data: Any) -> bool:
    if not isinstance(data, bool):
        raise TypeError(f"{data!r} is neither true nor false")
    return data


def _seconds(data: Any) -> float:
    seconds = float(data)
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"{seconds} seconds cannot be")
    return seconds


def _each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda data: tuple(map(convert, data))


_READ: Mapping[str, Callable[[Any], Any]] = {
    "losses": _each(float.fromhex),
    "counts": _each(int),
    "checksum": _number,
    "logs": _each(_read),
    "changed": _each(str),
    "clips": _each(_clip),
    "refusals": _each(_refusal),
    "given": _each(_given),
    "first_seconds": _seconds,
    "call_seconds": _seconds,
    "peak_bytes": _bytes,
    "compiles": _flag,
    "lines": _each(int),
    "outcomes": _each(int),
    "communicates": _flag,
}
"""How every field is read."""
