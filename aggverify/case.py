"""A case: one step, its layout, its losses and their dtype. Plain frozen data with a JSON form."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, groupby, repeat
from typing import Any

from aggverify.errors import InputError, unknown
from aggverify.layouts import Layout
from oracles import OracleError, Step

DTYPES = ("float64", "float32", "bfloat16", "float16")
SCHEMA = 1
LONG = 64
"""More losses than this are written as runs where many in a row are the same."""


@dataclass(frozen=True, slots=True)
class Case:
    """Everything the ranks need to run one training step.

    ``losses`` holds one float per response token, flat in step order; behind the mask it may be
    NaN or infinite (poison).
    """

    step: Step
    layout: Layout
    losses: tuple[float, ...]
    dtype: str = "float64"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise unknown("dtype", self.dtype, DTYPES)
        self.layout.check_covers(self.step)
        if len(self.losses) != self.step.num_response_tokens:
            raise InputError(
                f"a case needs one loss per response token: {self.step.num_response_tokens} "
                f"tokens, got {len(self.losses)} losses"
            )

    @property
    def trivial(self) -> Case:
        """The same step on one rank in one micro-batch."""
        return self.with_layout(Layout.trivial(len(self.step.samples)))

    def with_layout(self, layout: Layout) -> Case:
        """The same step and losses under another layout."""
        return dataclasses.replace(self, layout=layout)

    def with_losses(self, losses: tuple[float, ...]) -> Case:
        """The same step and layout with other losses."""
        return dataclasses.replace(self, losses=losses)

    def masked_tokens(self) -> list[int]:
        """Flat indices of the response tokens behind the mask."""
        flat = b"".join(s.loss_mask for s in self.step.samples)
        return [i for i, m in enumerate(flat) if not m]

    def to_json(self) -> dict[str, Any]:
        """Plain data; non-finite losses become the strings ``nan``, ``inf``, ``-inf``."""
        losses: Any = _plain_losses(self.losses)
        return {
            "schema": SCHEMA,
            "step": self.step.to_json(),
            "layout": self.layout.to_json(),
            "losses": losses,
            "dtype": self.dtype,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Case:
        """Rebuild a case from :meth:`to_json`'s data; raises InputError on anything else."""
        if not isinstance(data, Mapping):
            raise InputError(f"a case is a JSON object, got {type(data).__name__}")
        if data.get("schema") != SCHEMA:
            raise InputError(f"case schema must be {SCHEMA}, got {data.get('schema')!r}")
        missing = {"step", "layout", "losses", "dtype"} - set(data)
        if missing:
            raise InputError(f"the case lacks {', '.join(sorted(missing))}")
        try:
            step = Step.from_json(data["step"])
        except OracleError as error:
            raise InputError(f"the case's step is not valid: {error}") from error
        losses = _losses_from(data["losses"], step.num_response_tokens)
        return Case(step, Layout.from_json(data["layout"]), losses, data["dtype"])


def _plain_losses(losses: tuple[float, ...]) -> Any:
    """A list, or, where that is shorter, ``{"runs": [[loss, how often], ...]}``."""
    if len(losses) > LONG and len(set(losses)) <= len(losses) // 4:
        runs = [(next(same), 1 + sum(1 for _ in same)) for _, same in groupby(losses)]
        if len(runs) <= len(losses) // 4:
            return {"runs": [[_json(x), count] for x, count in runs]}
    return [_json(x) for x in losses]


def _json(loss: float) -> float | str:
    return loss if math.isfinite(loss) else str(loss)


def _losses_from(given: object, tokens: int) -> tuple[float, ...]:
    if isinstance(given, Mapping) and set(given) == {"all"}:
        return (_loss(given["all"]),) * tokens  # as written before there were runs
    if isinstance(given, Mapping) and set(given) == {"runs"}:
        return _from_runs(given["runs"], tokens)
    if not isinstance(given, list):
        raise InputError(
            f'losses must be a list or {{"runs": [[loss, count], ...]}}, got {given!r}'
        )
    return tuple(map(_loss, given))


def _from_runs(runs: object, tokens: int) -> tuple[float, ...]:
    if not isinstance(runs, list):
        raise InputError(f"runs of losses must be a list, got {runs!r}")
    left, parts = tokens, []
    for run in runs:
        count = run[1] if isinstance(run, list) and len(run) == 2 else None
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InputError(f"a run of losses is [loss, how often], got {run!r}")
        left -= count
        if left < 0:
            break
        parts.append(repeat(_loss(run[0]), count))
    if left:
        raise InputError(f"runs of losses must cover {tokens} tokens, got {tokens - left}")
    return tuple(chain.from_iterable(parts))


def _loss(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(f"a loss must be a number, 'nan', 'inf' or '-inf', got {value!r}")
    if isinstance(value, str) and value not in ("nan", "inf", "-inf"):
        raise InputError(f"a loss must be a number, 'nan', 'inf' or '-inf', got {value!r}")
    return float(value)
