"""A case: one step, its layout, its losses and their dtype. Plain frozen data with a JSON form."""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from aggverify.errors import InputError, unknown
from aggverify.oracles import OracleError, Step
from aggverify.oracles.runs import SAVING, runs, starts_of_runs
from aggverify.steps.layouts import Layout

DTYPES = ("float64", "float32", "bfloat16", "float16")
SCHEMA = 1
WRITTEN_IN_FULL = 64
"""Up to so many losses are listed one by one; more are written as runs where that is shorter."""


@dataclass(frozen=True, slots=True)
class Case:
    """Everything the ranks need to run one training step.

    ``losses`` holds one float per response token, flat in step order; behind the mask it may be
    NaN or infinite (poison). ``dtype`` is what the reducer gets them in: ``float64``, ``float32``,
    ``bfloat16`` or ``float16``. Raises InputError where they do not belong together.
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

    @property
    def size(self) -> tuple[int, int, int, int, int, int]:
        """Return what "smaller" means to a reader.

        Ranks times micro-batches, samples, response tokens, prompt tokens, losses other than 0,
        samples that share a rollout.
        """
        step = self.step
        return (
            self.layout.world_size * self.layout.num_microbatches,
            len(step.samples),
            step.num_response_tokens,
            sum(s.prompt_length for s in step.samples),
            sum(x != 0 for x in self.losses),
            len(step.samples) - step.num_rollouts,
        )

    def with_layout(self, layout: Layout) -> Case:
        """Return the same step and losses under another layout."""
        return Case(self.step, layout, self.losses, self.dtype)

    def with_losses(self, losses: tuple[float, ...]) -> Case:
        """Return the same step and layout with other losses."""
        return Case(self.step, self.layout, losses, self.dtype)

    def without_zeros(self) -> Case:
        """Return the case with 1 for every loss of 0: where losses scale weights, 0 hides one.

        In 16 bits with 1 for every loss smaller than 1 as well: dividing a weight by that would
        magnify its rounding too much.
        """
        smallest_positive = 5e-324
        least = 1.0 if self.dtype in ("bfloat16", "float16") else smallest_positive
        losses = tuple(1.0 if abs(x) < least else x for x in self.losses)
        return self if losses == self.losses else self.with_losses(losses)

    def with_one_loss_a_sample(self) -> Case:
        """Return the case with the largest loss of a sample's unmasked tokens for all of them."""
        losses = list(self.losses)
        for sample, start in zip(self.step.samples, self.step.offsets, strict=False):
            own = [start + t for t, bit in enumerate(sample.loss_mask) if bit]
            most = max((losses[t] for t in own), key=abs, default=0.0)
            for t in own:
                losses[t] = most
        found = tuple(losses)
        return self if found == self.losses else self.with_losses(found)

    def masked_tokens(self) -> list[int]:
        """Flat indices of the response tokens behind the mask."""
        flat = b"".join(s.loss_mask for s in self.step.samples)
        return [i for i, m in enumerate(flat) if not m]

    def to_json(self) -> dict[str, Any]:
        """Plain data; non-finite losses become the strings ``nan``, ``inf``, ``-inf``."""
        losses: Any = _plain(self.losses)
        return {
            "schema": SCHEMA,
            "step": self.step.to_json(),
            "layout": self.layout.to_json(),
            "losses": losses,
            "dtype": self.dtype,
        }

    def packed(self) -> dict[str, Any]:
        """Plain data for the ranks: step and losses as texts, which cases may share.

        Few losses are the bytes of doubles, which are read at once and exactly.
        """
        if len(self.losses) <= SHORT:
            exact = np.array(self.losses, dtype="<f8").tobytes()
            step, losses = _known_step_text(self.step), b64encode(exact).decode()
        else:
            step, losses = _step_text(self.step), json.dumps(_plain(self.losses))
        layout = self.layout.to_json()
        return {"step": step, "losses": losses, "dtype": self.dtype, "layout": layout}

    @staticmethod
    def unpacked(data: Mapping[str, Any]) -> Case:
        """Rebuild a case from :meth:`packed`'s data; a text that was seen lately costs nothing."""
        step, losses = data["step"], data["losses"]
        known = len(step) + len(losses) <= 32 * SHORT
        read_step, read_losses = (
            (_known_step, _known_losses) if known else (_step_of_text, _losses_of_text)
        )
        found = read_step(step)
        tokens = found.num_response_tokens
        layout = Layout.from_json(data["layout"])
        return Case(found, layout, read_losses(losses, tokens), data["dtype"])

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Case:
        """Rebuild a case from :meth:`to_json`'s data; raises InputError on anything else."""
        if not isinstance(data, Mapping):
            raise InputError(f"a case is a JSON object, got {type(data).__name__}")
        version = data.get("schema")
        if type(version) is not int or version != SCHEMA:  # True == 1
            raise InputError(f"case schema must be {SCHEMA}, got {version!r:.200}")
        missing = {"step", "layout", "losses", "dtype"} - set(data)
        if missing:
            raise InputError(f"the case lacks {', '.join(sorted(missing))}")
        step = _step(data["step"])
        losses = _losses(data["losses"], step.num_response_tokens)
        return Case(step, Layout.from_json(data["layout"]), losses, data["dtype"])


def _step(data: Any) -> Step:
    try:
        return Step.from_json(data)
    except OracleError as error:
        raise InputError(f"the case's step is not valid: {error}") from error


def _losses(data: Any, tokens: int) -> tuple[float, ...]:
    given = _listed(data, tokens)
    # Losses are nearly always floats only: that is found out in C, without a call for each.
    floats = set(map(type, given)) <= {float}
    return tuple(given) if floats else tuple(map(_loss, given))


def has_whole_groups(case: Case, size: int) -> bool:
    """Whether every micro-batch is a row of complete prompt groups of that size.

    Members of a group are side by side.
    """
    groups = set(case.step.groups.values())
    cells = [cell for _, _, cell in case.layout.cells()]
    cut = [cell[i : i + size] for cell in cells for i in range(0, len(cell), size)]
    return all(piece in groups and len(piece) == size for piece in cut)


def ranks_with_parts(case: Case) -> set[int]:
    """Ranks that hold some members of a prompt group in a micro-batch, but not all."""
    groups = [set(members) for members in case.step.groups.values()]
    cp = case.layout.cp_size
    return {
        d * cp + c
        for d, _, cell in case.layout.cells()
        for c in range(cp)
        if any(group & set(cell) and not group <= set(cell) for group in groups)
    }


def ranks_sharing_groups(case: Case) -> set[int]:
    """Ranks whose micro-batches together hold some members of a prompt group, but not all."""
    groups, cp = [set(members) for members in case.step.groups.values()], case.layout.cp_size
    shards = [{i for cell in rank for i in cell} for rank in case.layout.micro_batches]
    return {
        d * cp + c
        for d, own in enumerate(shards)
        for c in range(cp)
        if any(group & own and not group <= own for group in groups)
    }


SHORT = 4096
"""Steps of no more tokens are remembered in their packed form."""


def _step_text(step: Step) -> str:
    return json.dumps(step.to_json())


def _step_of_text(text: str) -> Step:
    return _step(json.loads(text))


def _losses_of_text(text: str, tokens: int) -> tuple[float, ...]:
    if text.startswith(("[", "{")):
        return _losses(json.loads(text), tokens)
    return tuple(np.frombuffer(b64decode(text), dtype="<f8").tolist())


_known_step_text = lru_cache(maxsize=64)(_step_text)
_known_step = lru_cache(maxsize=64)(_step_of_text)
_known_losses = lru_cache(maxsize=64)(_losses_of_text)


def _plain(losses: tuple[float, ...]) -> Any:
    """Return a list, or for many losses their one value or their runs, where that is shorter."""
    if len(losses) <= WRITTEN_IN_FULL:
        # A sum of any that is not finite is not finite either: found out in C.
        return list(losses if math.isfinite(sum(losses)) else map(_number, losses))
    values = np.array(losses, dtype=np.float64)
    values[np.isnan(values)] = np.nan  # equal bits, so they are one run
    starts = starts_of_runs(values)
    if len(starts) == 1:
        return {"all": _number(losses[0])}
    if len(starts) * SAVING > len(losses):
        return list(map(_number, losses))
    counts = np.diff(starts, append=len(losses)).tolist()
    return {"runs": [[_number(losses[i]), n] for i, n in zip(starts.tolist(), counts, strict=True)]}


def _number(loss: float) -> float | str:
    return loss if math.isfinite(loss) else str(loss)


def _listed(data: object, tokens: int) -> list[Any]:
    """All losses of a plain form; never more than the step has tokens."""
    if isinstance(data, Mapping) and set(data) == {"all"}:
        return [data["all"]] * tokens
    try:
        pairs = runs(data)
    except OracleError as error:
        raise InputError(f"losses: {error}") from None
    if pairs is None and not isinstance(data, list):
        raise InputError(f"losses must be a list or runs, got {data!r:.200}")
    count = len(data) if isinstance(data, list) else sum(n for _, n in pairs or ())
    if count != tokens:
        raise InputError(
            f"a case needs one loss per response token: {tokens} tokens, got {count} losses"
        )
    return data if isinstance(data, list) else [x for x, n in pairs or () for _ in range(n)]


def _loss(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(f"a loss must be a number, 'nan', 'inf' or '-inf', got {value!r:.80}")
    if isinstance(value, str) and value not in ("nan", "inf", "-inf"):
        raise InputError(f"a loss must be a number, 'nan', 'inf' or '-inf', got {value!r:.80}")
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"a loss must fit a double, got {value!r:.40}...") from None
