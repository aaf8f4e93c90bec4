"""Engines written down as data: the factors around backward and one sum over all ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from math import prod
from operator import add
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from aggverify.engines.spec import Deviation, Sizes

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aggverify.engines.emulated_session import EmulatedSession

Size = Literal["dp_size", "cp_size", "world_size", "num_microbatches", "num_rollouts", "num_tokens"]


@dataclass(frozen=True, slots=True)
class ScaleFactor:
    """A size that a loss or gradient is multiplied with or divided by, as the trainer does it.

    ``num_tokens`` is what all ranks counted in the step, at least 1; it is known after the
    reduction only.
    """

    size: Size
    how: Literal["times", "over", "times 1/"]

    def number(self, sizes: Sizes, num_tokens: int) -> int:
        """Return the size itself."""
        if self.size == "num_tokens":
            return max(num_tokens, 1)
        found: int = getattr(sizes, self.size)
        return found

    def exact(self, sizes: Sizes, num_tokens: int) -> Fraction:
        """Return what it multiplies by."""
        number = Fraction(self.number(sizes, num_tokens))
        return number if self.how == "times" else 1 / number

    def of(self, loss: Tensor, sizes: Sizes) -> Tensor:
        """Return a loss scaled by it, for backward."""
        number = self.number(sizes, 0)
        if self.how == "times":
            return loss * number
        return loss / number if self.how == "over" else loss * (1.0 / number)

    def onto(
        self, gradient: Tensor | npt.NDArray[np.float64], sizes: Sizes, num_tokens: int
    ) -> None:
        """Scale a gradient by it, in place; tensors and arrays get the same bits."""
        number = self.number(sizes, num_tokens)
        if self.how == "over":
            gradient /= number
        else:
            gradient *= number if self.how == "times" else 1.0 / number


def times(size: Size) -> ScaleFactor:
    """Return a multiplication."""
    return ScaleFactor(size, "times")


def over(size: Size) -> ScaleFactor:
    """Return a division."""
    return ScaleFactor(size, "over")


def times_reciprocal(size: Size) -> ScaleFactor:
    """Return a multiplication with the rounded reciprocal, as Megatron scales its buffers."""
    return ScaleFactor(size, "times 1/")


@dataclass(frozen=True, slots=True)
class EmulatedEngine:
    """An engine that scales losses, adds gradients up over micro-batches and ranks, and scales."""

    name: str
    title: str
    trainers: str
    does: str
    required: str
    roundings: int
    scale: tuple[ScaleFactor, ...] = ()
    """The trainer's own factors and the schedule's, on every micro-batch's loss."""
    before_reduction: tuple[ScaleFactor, ...] = ()
    """On a rank's accumulated gradient, before it is summed over all ranks."""
    after_reduction: tuple[ScaleFactor, ...] = ()
    """On the sum."""
    weighted: bool = False
    """Whether every micro-batch's loss is multiplied by its own token count first."""
    averaged: bool = False
    """Whether every micro-batch's loss is divided by its own token count, at least 1, first."""
    gathered: tuple[ScaleFactor, ...] = ()
    """What the backward of a gather of losses over context parallelism multiplies by."""
    not_claimed: Mapping[str, str] = field(default_factory=dict)
    phantom_tokens: bool = False
    """Whether a sample without a token counts as one, whatever count the reducer returns."""
    deviates: Deviation | None = None
    merges: bool = True
    guessed: bool = True

    @property
    def adds_up(self) -> bool:
        """Whether losses are added before anything else is done to them."""
        return not (self.weighted or self.averaged)

    @property
    def takes_counts(self) -> bool:
        return any(factor.size == "num_tokens" for factor in self.after_reduction)

    def available(self) -> str | None:
        return None

    def value(
        self, losses: Sequence[Fraction], num_tokens: Sequence[int], sizes: Sizes
    ) -> Fraction:
        tokens = sum(num_tokens)
        if self.weighted or self.averaged:
            own = zip(losses, _counts_of_losses(num_tokens, sizes), strict=False)
            losses = [loss * n if self.weighted else loss / max(n, 1) for loss, n in own]
        value = reduce(add, losses)
        factors = (*self.scale, *self.before_reduction, *self.after_reduction)
        for factor in (*factors, *(self.gathered if sizes.gathered else ())):
            value *= factor.exact(sizes, tokens)
        return value

    @property
    def preloads(self) -> tuple[str, ...]:
        return ()

    def gathers(self, sizes: Sizes) -> int:
        return prod(factor.number(sizes, 0) for factor in self.gathered)

    def counted(self, tokens: Sequence[int], returned: int | None) -> int:
        if self.phantom_tokens:
            return sum(max(n, 1) for n in tokens)
        return sum(tokens) if returned is None else returned

    def finished(
        self, gradient: npt.NDArray[np.float64], num_tokens: int, sizes: Sizes
    ) -> npt.NDArray[np.float64]:
        """Return a sum over all ranks as the update, bit for bit as a session makes it."""
        done = gradient.copy()
        for factor in self.after_reduction:
            factor.onto(done, sizes, num_tokens)
        return done

    def session(self, device: torch.device) -> EmulatedSession:
        from aggverify.engines.emulated_session import EmulatedSession

        return EmulatedSession(self, device)


def _counts_of_losses(num_tokens: Sequence[int], sizes: Sizes) -> Sequence[int]:
    """Return the count of each loss: of context-parallel ranks with copies, the first one's."""
    if not sizes.gathered:
        return num_tokens
    k = sizes.num_microbatches
    ranks = [num_tokens[n : n + k] for n in range(0, len(num_tokens), k)]
    return [n for rank in ranks[:: sizes.cp_size] for n in rank]
