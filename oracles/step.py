"""The step model: everything one optimizer step consumes, before any sharding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import OracleError
from .runs import MAX_TOKENS, SAVING, length, runs, starts_of_runs

Mask = bytes | Sequence[int] | npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """One training sequence: a prompt, and a response with a 0/1 loss mask.

    Masks are kept as ``bytes``, one 0 or 1 per response token: hashable, compact, and
    ``numpy.frombuffer`` reads them without a copy. ``original_mask`` is the mask the denominators
    use when tokens were rejected after the fact; None means it equals ``loss_mask``. The
    constructor is written out because it takes any 0/1 sequence and keeps bytes.
    """

    prompt_length: int
    loss_mask: bytes
    rollout: int
    group: int
    original_mask: bytes | None = None
    num_unmasked: int = field(init=False, repr=False, compare=False)
    """Tokens the numerator sees."""

    def __init__(
        self,
        prompt_length: int,
        loss_mask: Mask,
        rollout: int,
        group: int,
        original_mask: Mask | None = None,
    ) -> None:
        original = None if original_mask is None else _mask("original_mask", original_mask)
        mask = _mask("loss_mask", loss_mask)
        if original is not None:
            _check_rejection(original, mask)
        for name, value in (
            ("prompt_length", _integer("prompt_length", prompt_length)),
            ("loss_mask", mask),
            ("rollout", _integer("rollout", rollout)),
            ("group", _integer("group", group)),
            ("original_mask", original),
            ("num_unmasked", mask.count(1)),
        ):
            object.__setattr__(self, name, value)

    @property
    def response_length(self) -> int:
        """Response tokens, masked ones included."""
        return len(self.loss_mask)

    @property
    def total_length(self) -> int:
        """Prompt and response."""
        return self.prompt_length + len(self.loss_mask)

    @property
    def num_original(self) -> int:
        """Tokens the denominators see unless a policy reads otherwise: those before rejection."""
        return self.num_unmasked if self.original_mask is None else self.original_mask.count(1)


def _check_rejection(original: bytes, mask: bytes) -> None:
    if len(original) != len(mask):
        raise OracleError(
            f"original_mask must have the loss_mask's {len(mask)} tokens, got {len(original)}"
        )
    added = int.from_bytes(mask) & ~int.from_bytes(original)
    if added:
        token = len(mask) - (added.bit_length() + 7) // 8
        raise OracleError(
            f"rejection only removes tokens, but token {token} is unmasked in loss_mask "
            f"{_text(mask):.100} and masked in original_mask {_text(original):.100}"
        )


def _integer(name: str, value: object) -> int:
    if type(value) is int and value >= 0:  # nearly all: asking for kinds of numbers takes longer
        return value
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise OracleError(f"{name} must be a non-negative integer, got {value!r:.200}")
    return int(value)


def _mask(name: str, value: Mask) -> bytes:
    if isinstance(value, bytes):
        mask = value
    else:
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise OracleError(
                f"{name} must be a flat sequence of 0 and 1, got {value!r:.200}"
            ) from error
        if array.ndim != 1 or (array.size and array.dtype.kind not in "biuf"):
            raise OracleError(f"{name} must be a flat sequence of 0 and 1, got {value!r:.200}")
        bad = array[(array != 0) & (array != 1)]
        if bad.size:
            raise OracleError(f"{name} must hold 0 and 1 only, got {bad[0].item()!r}")
        mask = array.astype(np.uint8).tobytes()
    if mask.strip(b"\0\1"):
        raise OracleError(f"{name} must hold 0 and 1 only, got {max(mask)!r}")
    return mask


class _Hashed:
    """A slot for a hash that is computed once.

    It is no field, and so is not pickled: the hash of bytes differs from process to process.
    """

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True)
class Step(_Hashed):
    """All samples of one optimizer step, in order; what follows from them is worked out once.

    Raises OracleError where there are none, or samples of one rollout are of several groups.
    """

    samples: tuple[Sample, ...]
    rollouts: dict[int, tuple[int, ...]] = field(init=False, repr=False, compare=False)
    """Sample indices of each rollout, in order of first appearance."""
    groups: dict[int, tuple[int, ...]] = field(init=False, repr=False, compare=False)
    """Sample indices of each prompt group, in order of first appearance."""
    offsets: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Start of each sample in the flat vector of response tokens."""
    num_response_tokens: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        samples = _checked(self.samples)
        ends = tuple(accumulate((s.response_length for s in samples), initial=0))
        for name, value in (
            ("samples", samples),
            ("rollouts", _members([s.rollout for s in samples])),
            ("groups", _members([s.group for s in samples])),
            ("offsets", ends[:-1]),
            ("num_response_tokens", ends[-1]),
        ):
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash(self.samples))
            return self._hash

    @property
    def num_rollouts(self) -> int:
        return len(self.rollouts)

    @property
    def num_groups(self) -> int:
        return len(self.groups)

    @property
    def num_unmasked(self) -> int:
        """Tokens the numerator sees, over all samples."""
        return sum(s.num_unmasked for s in self.samples)

    def to_json(self) -> dict[str, Any]:
        """Plain data, masks as text of 0 and 1, or as runs where they are long and plain."""
        return {"samples": [_sample_json(s) for s in self.samples]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Step:
        """Rebuild a step from :meth:`to_json`'s data; raises OracleError."""
        try:
            given = data["samples"]
            total = sum(max(length(s["mask"]), length(s.get("original"))) for s in given)
            if total > MAX_TOKENS:
                raise OracleError(f"a step of at most {MAX_TOKENS} tokens can be read, got {total}")
            return Step(tuple(map(_sample_from, given)))
        except (KeyError, TypeError, AttributeError) as error:
            raise OracleError(f"not a step: {data!r:.200} ({error!r:.200})") from error


def _checked(given: Iterable[Sample]) -> tuple[Sample, ...]:
    samples = tuple(given) if isinstance(given, Iterable) else (given,)
    if not samples:
        raise OracleError("a step needs at least one sample, got none")
    group_of: dict[int, int] = {}
    for sample in samples:
        if not isinstance(sample, Sample):
            raise OracleError(f"a step consists of Sample objects, got {sample!r}")
        if group_of.setdefault(sample.rollout, sample.group) != sample.group:
            raise OracleError(
                f"rollout {sample.rollout} belongs to one prompt group, got groups "
                f"{group_of[sample.rollout]} and {sample.group}"
            )
    return samples


def _members(ids: Sequence[int]) -> dict[int, tuple[int, ...]]:
    found: dict[int, list[int]] = {}
    for index, name in enumerate(ids):
        found.setdefault(name, []).append(index)
    return {name: tuple(indices) for name, indices in found.items()}


def _sample_json(sample: Sample) -> dict[str, Any]:
    data: dict[str, Any] = {
        "prompt": sample.prompt_length,
        "mask": _plain(sample.loss_mask),
        "rollout": sample.rollout,
        "group": sample.group,
    }
    if sample.original_mask is not None:
        data["original"] = _plain(sample.original_mask)
    return data


LONG = 256
"""Masks longer than this are written as runs, where that is shorter."""


def _plain(mask: bytes) -> str | dict[str, Any]:
    if len(mask) <= LONG:
        return _text(mask)
    bits = np.frombuffer(mask, dtype=np.uint8)
    starts = starts_of_runs(bits)
    if len(starts) * SAVING > len(mask):
        return _text(mask)
    counts = np.diff(starts, append=len(mask))
    return {"runs": [list(run) for run in zip(bits[starts].tolist(), counts.tolist(), strict=True)]}


_TO_TEXT = bytes.maketrans(b"\0\1", b"01")
_FROM_TEXT = bytes.maketrans(b"01", b"\0\1")


def _text(mask: bytes) -> str:
    return mask.translate(_TO_TEXT).decode()


def _sample_from(data: Mapping[str, Any]) -> Sample:
    given = (data["prompt"], data["mask"], data["rollout"], data["group"], data.get("original"))
    is_short = isinstance(given[1], str) and len(given[1]) <= LONG
    return _known_sample(*given) if is_short and given[4] is None else _sample(*given)


def _sample(prompt: Any, mask: Any, rollout: Any, group: Any, original: Any = None) -> Sample:
    bits = None if original is None else _bits(original)
    return Sample(prompt, _bits(mask), rollout, group, bits)


# Typed, because True == 1: an id of true would be read as 1 instead of refused.
_known_sample = lru_cache(maxsize=4096, typed=True)(_sample)


def _bits(text: object) -> bytes:
    if isinstance(text, str) and not text.strip("01"):
        return text.encode().translate(_FROM_TEXT)
    if (pairs := runs(text)) is None:
        raise OracleError(f"a mask is a text of 0 and 1, got {text!r:.200}")
    bad = [bit for bit, _ in pairs if type(bit) is not int or bit not in (0, 1)]
    if bad:
        raise OracleError(f"a mask holds 0 and 1 only, got {bad[0]!r:.80}")
    return b"".join(bytes((bit,)) * count for bit, count in pairs)
