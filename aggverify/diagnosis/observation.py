"""What a diagnosis works on: weights read off executions, each with what they should be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from aggverify.diagnosis.terms import Array as Array
from aggverify.diagnosis.terms import Tokens
from aggverify.steps.case import Case

TOLERANCE = 1e-6
"""Relative; distinct forms differ by a ratio of small integers, float32 roundings by 1e-6."""


@dataclass(frozen=True)
class WeightObservation:
    """Weights and reported value of one execution; derived arrays are cached.

    ``expected``: the oracle's weights, None without one. ``local_losses``: per rank and
    micro-batch, as returned. ``trivial``: the weights on one rank in one micro-batch.
    """

    case: Case
    observed: Array
    expected: tuple[Fraction, ...] | None
    value: Fraction | None = None
    local_losses: tuple[tuple[float, ...], ...] = ()
    trivial: Array | None = None
    experts: bool = False
    """Whether every second weight is read from an expert's parameter (``steps.experts``)."""

    @cached_property
    def mask(self) -> npt.NDArray[np.bool_]:
        """Per response token, flat: whether it is unmasked."""
        flat = b"".join(s.loss_mask for s in self.case.step.samples)
        return np.frombuffer(flat, dtype=np.uint8).astype(bool)

    @cached_property
    def exact(self) -> Array:
        """The expected weights as floats."""
        assert self.expected is not None
        return np.array([float(w) for w in self.expected])

    @cached_property
    def tokens(self) -> Tokens:
        """Units and counts of its tokens."""
        return Tokens([self.case])

    def upright(self, slope: float) -> WeightObservation:
        """Return it with all weights of one sign, as closed forms have.

        ``slope``: an objective's where all inputs are 0, by which its weights are divided.
        """
        assert self.expected is not None
        down = np.where(self.exact < 0, -slope, slope)
        return replace(
            self,
            observed=self.observed / down,
            expected=tuple(map(abs, self.expected)),
            trivial=None if self.trivial is None else self.trivial / down,
        )

    @property
    def relative_to_trivial(self) -> WeightObservation:
        """The same with the trivial layout's weights for expected ones."""
        assert self.trivial is not None
        exact = tuple(Fraction(w) for w in self.trivial.tolist())
        return replace(self, expected=exact, trivial=None)


@dataclass(frozen=True, slots=True)
class ObservedSign:
    """What observations show, by a sign that the bug table knows, and in a sentence."""

    sign: str
    sentence: str


def close(a: Array, b: Array) -> bool:
    """Equal within TOLERANCE of ``b``, and exactly where ``b`` is 0."""
    return bool((np.abs(a - b) <= TOLERANCE * np.abs(b)).all())
