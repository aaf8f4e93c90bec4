"""A diagnosis: what is computed instead, and by which bug."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from aggverify.diagnosis.bugs.base import KnownBug
from aggverify.diagnosis.observation import Array
from aggverify.steps.case import Case


class Predicts(Protocol):
    """A formula."""

    @property
    def sentence(self) -> str: ...

    @property
    def cost(self) -> int:
        """Of several that fit the simplest is reported."""

    def predict(self, cases: Sequence[Case]) -> Array:
        """Weights of the unmasked tokens of some cases, one after the other."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the candidate computes instead, as far as it could be identified.

    ``root`` is equal for findings with the same diagnosis, which are shown as one. ``form``: the
    formula that gives the weights, where one does.
    """

    sentence: str
    factor: str | None = None
    bug: KnownBug | None = None
    root: str | None = None
    form: Predicts | None = None
    off: str | None = None
    """By how much gradients are wrong, where one factor expresses it: "cp_size times too large"."""
